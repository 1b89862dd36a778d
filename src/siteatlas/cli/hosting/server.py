"""The web service of this process: its database, and uvicorn running the application."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast

import uvicorn

from siteatlas.access.keys import Installation, adopt_admin_key
from siteatlas.api.context import ApiContext
from siteatlas.cli.hosting.connections import (
    BACKLOG,
    CREATE_KEY,
    ConnectionLimits,
    ConnectionRegistry,
    HttpProtocol,
    is_loopback,
    quiet_accept_faults,
)
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import stop_on_signals
from siteatlas.cli.terminal.output import print_warning
from siteatlas.errors import BindRefused, DatabaseUnavailable
from siteatlas.main import create_app, end_waiting
from siteatlas.net.egress import EgressPolicy
from siteatlas.process import freeze_startup_objects
from siteatlas.scanner.reading.document import load_readers
from siteatlas.settings import Settings
from siteatlas.storage.session import get_session

INSECURE = (
    "WARNING: --insecure-no-auth: everyone who can reach {host} can use this service, without an "
    "access key."
)


async def check_access(settings: Settings, *, insecure_no_auth: bool = False) -> Installation:
    """The state of the installation; BindRefused if the address to listen on needs a key."""
    if settings.admin_key_file is not None:
        async with get_session() as session, session.begin():
            await adopt_admin_key(session, settings.admin_key_file)
    installation = Installation()
    if await installation.is_closed() or (settings.socket is None and is_loopback(settings.host)):
        return installation
    if not insecure_no_auth:
        reason = f"{settings.host} is not a loopback address"
        if settings.socket is not None:
            reason = "A proxy makes a Unix socket reachable from elsewhere"
        raise BindRefused(
            f"{reason}, so the service needs an access key. Create one with: {CREATE_KEY}"
        )
    print_warning(INSECURE.format(host=settings.socket or settings.host), style="bold red")
    return installation


CONNECTION_SECONDS = 2
# Taken in one round of the loop, before any of them can be refused.
ACCEPTED_AT_ONCE = 64


class WebServer(uvicorn.Server):
    """A server that leaves signals to its owner and reports when it listens."""

    def __init__(
        self,
        app: Callable[..., object],
        on_ready: Callable[[], None],
        limits: ConnectionLimits = ConnectionLimits(),
        on_shutdown: Callable[[], None] = lambda: None,
    ) -> None:
        protocol = partial(HttpProtocol, room=ConnectionRegistry(limits))
        super().__init__(
            uvicorn.Config(
                app,
                http=cast("type[asyncio.Protocol]", protocol),
                backlog=ACCEPTED_AT_ONCE,
                log_config=None,
                log_level="error",  # it warns of each refused request
                access_log=False,
                server_header=False,
                # It would believe forwarded headers of every program on this machine.
                proxy_headers=False,
                lifespan="on",
                timeout_graceful_shutdown=CONNECTION_SECONDS,
            )
        )
        self._on_ready = on_ready
        self._on_shutdown = on_shutdown

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the command handles the signals."""
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve as uvicorn does, and shut down cleanly if cancelled too."""
        try:
            await super().serve(sockets)
        except asyncio.CancelledError:
            if self.started:
                await self.shutdown(sockets)
            raise

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, then call `on_ready`."""
        load_readers()
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)
        freeze_startup_objects()
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Call `on_shutdown`, which ends requests that wait, then shut down as uvicorn does."""
        self._on_shutdown()
        await super().shutdown(sockets)


class Service:
    """The service of one command, from opening its database to closing it."""

    def __init__(
        self, settings: Settings, *, run_scheduler: bool = True, insecure_no_auth: bool = False
    ) -> None:
        self._settings = settings
        self._run_scheduler = run_scheduler
        self._insecure_no_auth = insecure_no_auth
        self._stop_wanted = False
        self._server: WebServer | None = None
        self._context: ApiContext | None = None
        self._draining: asyncio.Task[None] | None = None

    def drain(self) -> None:
        """Claim no more jobs, and stop the service when those that run have ended."""
        self._draining = asyncio.create_task(self._stop_when_drained())

    async def _stop_when_drained(self) -> None:
        if self._context is not None and self._context.drain is not None:
            await self._context.drain()
        self.stop()

    def stop(self) -> None:
        """Stop the service cleanly, whether it is still starting or not."""
        self._stop_wanted = True
        if self._server is not None:
            self._server.should_exit = True

    async def run(self, listener: socket.socket, on_ready: Callable[[], None]) -> None:
        """Serve on `listener` until a signal comes or `stop` is called."""
        with stop_on_signals(self.stop, drain=self.drain):
            try:
                await self._run(listener, on_ready)
            except DatabaseUnavailable:
                # Stopped while waiting for the database: its absence needs no report.
                if not self._stop_wanted or self._server is not None:
                    raise

    async def _run(self, listener: socket.socket, on_ready: Callable[[], None]) -> None:
        """Open the database, then run the web server on `listener` until it is stopped."""

        def should_wait_for_database() -> bool:
            """Whether the starting web service still waits for its database."""
            return not self._stop_wanted

        async with opened(self._settings, go_on_waiting=should_wait_for_database) as database:
            if self._stop_wanted:
                return
            installation = await check_access(
                self._settings, insecure_no_auth=self._insecure_no_auth
            )
            policy = EgressPolicy.from_text(self._settings.egress_allow)
            if self._settings.socket is None:
                policy = policy.with_refused_socket(*listener.getsockname()[:2])
            app = create_app(
                self._settings,
                policy,
                run_scheduler=self._run_scheduler,
                database=database,
                installation=installation,
                insecure_no_auth=self._insecure_no_auth,
            )
            limits = ConnectionLimits.of(self._settings)
            self._context = app.state.api
            self._server = WebServer(app, on_ready, limits, partial(end_waiting, app))
            with quiet_accept_faults():
                await self._server.serve(sockets=[listener])
