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
    """Resolves a host name to all of its IP addresses."""

    async def addresses(self, host: str) -> Sequence[str]:
        """All IP addresses of a host; raises DnsNameUnknown or DnsError if there is none."""


class DnsResolver:
    """Queries the hosts file, then the name servers of the system or the given ones.

    Any number of lookups run at the same time here; the gate limits them for each client. A name
    whose servers did not respond in time is not looked up again for a few seconds. `servers` are
    IP addresses, with a port where it is not 53.
    """

    def __init__(self, servers: Sequence[str] = ()) -> None:
        self._servers = tuple(servers)
        self._dead_until: dict[str, float] = {}

    async def addresses(self, host: str) -> Sequence[str]:
        """Query the name servers unless they recently did not respond for this name."""
        if self._dead_until.get(host, 0.0) > time.monotonic():
            raise DnsError("The name servers of the site did not respond recently.")
        since = time.monotonic()
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                return await self._query(host)
        except TimeoutError as error:
            self._remember_dead_name(host)
            raise DnsError("The host name of the site was not resolved in time.") from error
        except pycares.AresError as error:
            if error.args[0] in _UNKNOWN:
                raise DnsNameUnknown from error
            if time.monotonic() - since > QUICK_SECONDS:
                self._remember_dead_name(host)
            raise DnsError from error
        except UnicodeError as error:
            raise DnsError from error

    async def _query(self, host: str) -> Sequence[str]:
        """Look a host name up once, without the memory of failed lookups."""
        with DnsQuery(self._servers) as query:
            return await query.addresses(host)

    def _remember_dead_name(self, host: str) -> None:
        """Do not query this name again for a few seconds: its name servers do not respond."""
        if len(self._dead_until) >= MAX_DEAD_NAMES:
            self._dead_until.clear()
        self._dead_until[host] = time.monotonic() + DEAD_SECONDS


class DnsQuery:
    """One lookup by c-ares on the event loop; use it with `with`.

    It has a separate channel, created in a tenth of a millisecond. So a changed resolv.conf takes
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
        self._unwatch_sockets()
        self._channel.close()

    async def addresses(self, host: str) -> list[str]:
        """All IP addresses in order of preference; raises AresError if there is none."""
        self._channel.getaddrinfo(
            host,
            None,
            family=socket.AF_UNSPEC,
            type=socket.SOCK_STREAM,
            callback=self._receive_answer,
        )
        self._set_timer()
        return await self._answer

    def _receive_answer(self, result: Any, code: int | None) -> None:
        """Set the result or the error of the DNS lookup; called by c-ares."""
        if self._answer.done():
            return
        if code is not None:
            self._answer.set_exception(pycares.AresError(code, pycares.errno.strerror(code)))
        else:
            found = (node.addr[0].decode("ascii") for node in result.nodes)
            self._answer.set_result(list(dict.fromkeys(found)))

    def _watch(self, fd: int, readable: bool, writable: bool) -> None:
        """Watch a socket as c-ares requests; its callback for DNS sockets."""
        if self._is_closed:
            return
        if readable:
            self._loop.add_reader(fd, self._process_sockets, fd, pycares.ARES_SOCKET_BAD)
            self._reading.add(fd)
        elif fd in self._reading:
            self._loop.remove_reader(fd)
            self._reading.discard(fd)
        if writable:
            self._loop.add_writer(fd, self._process_sockets, pycares.ARES_SOCKET_BAD, fd)
            self._writing.add(fd)
        elif fd in self._writing:
            self._loop.remove_writer(fd)
            self._writing.discard(fd)

    def _process_sockets(self, read_fd: int, write_fd: int) -> None:
        """Let c-ares read or write the sockets of a DNS lookup, then check its timeouts."""
        self._channel.process_fd(read_fd, write_fd)
        self._set_timer()

    def _set_timer(self) -> None:
        """Let c-ares check its own timeouts until there is an answer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._answer.done():
            pause = self._channel.timeout(MAX_PAUSE_SECONDS)  # type: ignore[no-untyped-call]
            bad = pycares.ARES_SOCKET_BAD
            self._timer = self._loop.call_later(pause, self._process_sockets, bad, bad)

    def _unwatch_sockets(self) -> None:
        """Remove the timer and the sockets of the DNS lookup from the event loop."""
        if self._timer is not None:
            self._timer.cancel()
        for fd in self._reading:
            self._loop.remove_reader(fd)
        for fd in self._writing:
            self._loop.remove_writer(fd)
