"""Names to addresses. Owns the lookup threads; judging the addresses is left to `gate.py`."""

from __future__ import annotations

import asyncio
import functools
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Protocol

from siteatlas.errors import DnsError, DnsNameUnknown

LOOKUP_THREADS = 4
_UNKNOWN = frozenset(
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name)
)


class Resolver(Protocol):
    """Whatever can tell all addresses of a name."""

    async def addresses(self, host: str) -> Sequence[str]:
        """Every address of the name; DnsNameUnknown or DnsError when there is none."""


class SystemResolver:
    """The resolver of the operating system, asked from a few threads of its own."""

    async def addresses(self, host: str) -> Sequence[str]:
        try:
            return await asyncio.wrap_future(_lookup_threads().submit(host))
        except socket.gaierror as error:
            raise (DnsNameUnknown if error.errno in _UNKNOWN else DnsError) from error
        except (OSError, UnicodeError) as error:
            raise DnsError from error


class LookupThreads:
    """A fixed number of threads, so that a slow name server cannot pile up work.

    They are daemons: a lookup that hangs must not hold up the end of the process.
    """

    def __init__(self, count: int) -> None:
        self._waiting: SimpleQueue[tuple[Future[list[str]], str]] = SimpleQueue()
        for number in range(count):
            threading.Thread(target=self._work, name=f"dns-{number}", daemon=True).start()

    def submit(self, host: str) -> Future[list[str]]:
        future: Future[list[str]] = Future()
        self._waiting.put((future, host))
        return future

    def _work(self) -> None:
        while True:
            future, host = self._waiting.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(_look_up(host))
            except (OSError, UnicodeError) as error:
                future.set_exception(error)


@functools.cache
def _lookup_threads() -> LookupThreads:
    return LookupThreads(LOOKUP_THREADS)


def _look_up(host: str) -> list[str]:
    """All addresses in the system's order of preference; a zone, if any, stays visible."""
    found = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
