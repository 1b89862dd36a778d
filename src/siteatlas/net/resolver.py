"""Resolves host names without threads. `gate.py` checks the addresses."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import pycares

from siteatlas.errors import DnsError, DnsNameUnknown

LOOKUP_SECONDS = 4.5
# Shorter than the first pause before a job is retried.
DEAD_SECONDS = 10.0
QUICK_SECONDS = 1.0
MAX_DEAD_NAMES = 1024
FIRST_TIMEOUT_SECONDS = 1.5
TRIES = 3
MAX_PAUSE_SECONDS = 1.0
_UNKNOWN = frozenset({pycares.errno.ARES_ENOTFOUND, pycares.errno.ARES_ENODATA})


class Resolver(Protocol):
    """Whatever can tell all addresses of a name."""

    async def addresses(self, host: str) -> Sequence[str]:
        """Every address of the name; DnsNameUnknown or DnsError when there is none."""


class DnsResolver:
    """Asks the hosts file, then the name servers of the system or the given ones.

    Any number of lookups run at the same time here; the gate limits them for each client. A name
    whose servers did not answer in time is not asked for again for a few seconds. `servers` are
    IP addresses, with a port where it is not 53.
    """

    def __init__(self, servers: Sequence[str] = ()) -> None:
        self._servers = tuple(servers)
        self._dead_until: dict[str, float] = {}

    async def addresses(self, host: str) -> Sequence[str]:
        if self._dead_until.get(host, 0.0) > time.monotonic():
            raise DnsError("The name servers of the site did not respond recently.")
        since = time.monotonic()
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                return await self._ask(host)
        except TimeoutError as error:
            self._remember(host)
            raise DnsError("The host name of the site was not resolved in time.") from error
        except pycares.AresError as error:
            if error.args[0] in _UNKNOWN:
                raise DnsNameUnknown from error
            if time.monotonic() - since > QUICK_SECONDS:
                self._remember(host)
            raise DnsError from error
        except UnicodeError as error:
            raise DnsError from error

    async def _ask(self, host: str) -> Sequence[str]:
        with DnsQuery(self._servers) as query:
            return await query.addresses(host)

    def _remember(self, host: str) -> None:
        if len(self._dead_until) >= MAX_DEAD_NAMES:
            self._dead_until.clear()
        self._dead_until[host] = time.monotonic() + DEAD_SECONDS


class DnsQuery:
    """One lookup by c-ares on the event loop; use it with `with`.

    It has a channel of its own, made in a tenth of a millisecond. So a changed resolv.conf takes
    effect at once, each lookup has its own source port, and a cancelled one leaves nothing behind.
    """

    def __init__(self, servers: Sequence[str] = ()) -> None:
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[list[str]] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._reading: set[int] = set()
        self._writing: set[int] = set()
        self._is_closed = False
        self._channel = pycares.Channel(
            sock_state_cb=self._watch,
            timeout=FIRST_TIMEOUT_SECONDS,
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
