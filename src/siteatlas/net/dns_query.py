"""One lookup by c-ares on the event loop: its sockets, its timer and its end.

Each lookup has a channel of its own, made in a tenth of a millisecond. So a changed resolv.conf
counts at once, each lookup has a source port of its own, and a cancelled one leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import pycares

FIRST_TIMEOUT = 1.5
TRIES = 3
MAX_PAUSE_SECONDS = 1.0


class DnsQuery:
    """A c-ares channel for one lookup; use it with `with`, inside a running loop."""

    def __init__(self, servers: Sequence[str] = ()) -> None:
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[list[str]] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._reading: set[int] = set()
        self._writing: set[int] = set()
        self._is_closed = False
        self._channel = pycares.Channel(
            sock_state_cb=self._watch,
            timeout=FIRST_TIMEOUT,
            tries=TRIES,
            servers=list(servers) or None,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._answer.cancel()
        self._channel.cancel()
        # The channel closes its sockets from a thread, which must not reach the loop.
        self._is_closed = True
        self._unwatch_all()
        self._channel.close()

    async def addresses(self, host: str) -> list[str]:
        """All addresses in order of preference; AresError says why there is none."""
        self._channel.getaddrinfo(
            host, None, family=socket.AF_UNSPEC, type=socket.SOCK_STREAM, callback=self._done
        )
        self._set_timer()
        return await self._answer

    def _done(self, result: Any, code: int | None) -> None:
        if self._answer.done():
            return
        if code is not None:
            self._answer.set_exception(pycares.AresError(code, pycares.errno.strerror(code)))
        else:
            found = (node.addr[0].decode("ascii") for node in result.nodes)
            self._answer.set_result(list(dict.fromkeys(found)))

    def _watch(self, fd: int, readable: bool, writable: bool) -> None:
        """c-ares tells which of its sockets it wants to hear of."""
        if self._is_closed:
            return
        if readable:
            self._loop.add_reader(fd, self._process, fd, pycares.ARES_SOCKET_BAD)
            self._reading.add(fd)
        elif fd in self._reading:
            self._loop.remove_reader(fd)
            self._reading.discard(fd)
        if writable:
            self._loop.add_writer(fd, self._process, pycares.ARES_SOCKET_BAD, fd)
            self._writing.add(fd)
        elif fd in self._writing:
            self._loop.remove_writer(fd)
            self._writing.discard(fd)

    def _process(self, read_fd: int, write_fd: int) -> None:
        self._channel.process_fd(read_fd, write_fd)
        self._set_timer()

    def _set_timer(self) -> None:
        """Let c-ares look at its own timeouts as long as there is no answer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._answer.done():
            pause = self._channel.timeout(MAX_PAUSE_SECONDS)  # type: ignore[no-untyped-call]
            bad = pycares.ARES_SOCKET_BAD
            self._timer = self._loop.call_later(pause, self._process, bad, bad)

    def _unwatch_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for fd in self._reading:
            self._loop.remove_reader(fd)
        for fd in self._writing:
            self._loop.remove_writer(fd)
