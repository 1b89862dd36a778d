"""The web service inside this process: uvicorn around the application, stopped by us."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from siteatlas.main import create_app
from siteatlas.settings import Settings

CONNECTION_SECONDS = 3


class Service(uvicorn.Server):
    """A server that leaves signals to its owner and tells when it listens."""

    def __init__(
        self, settings: Settings, on_ready: Callable[[], None], *, scheduler: bool = True
    ) -> None:
        app = create_app(settings, scheduler=scheduler)
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="on",
                timeout_graceful_shutdown=CONNECTION_SECONDS,
            )
        )
        self._on_ready = on_ready

    def stop(self) -> None:
        """Ask the service to end in good order."""
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: signals belong to the command."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, then tell the owner."""
        await super().startup(sockets)
        self._on_ready()
