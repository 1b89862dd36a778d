"""The Python API: the entries of a site's sitemaps, one after the other, without a database.

`scan` is for asynchronous programs, `scan_sync` for all others. Both read as fast as they are
asked, and stop their work when nobody asks any more.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import repeat
from queue import SimpleQueue
from typing import Any, Literal, get_args

from siteatlas.errors import ConfigurationError, InputError
from siteatlas.net.address import WebAddress, parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.politeness import Politeness
from siteatlas.per_loop import PerLoop
from siteatlas.scanner.analyzer import SitemapAnalyzer
from siteatlas.scanner.events import EntriesRead
from siteatlas.scanner.options import ScanOptions

__all__ = ["Entry", "scan", "scan_sync"]

USER_AGENT = "Siteatlas (sitemap library)"
HOST_DELAY = 0.5
HOST_CONNECTIONS = 2
PIECES_WAITING = 4
LONGEST_USER_AGENT = 400
ALLOW_WORDS = "allow must be a list of texts such as '127.0.0.1:8000'."

Probe = Literal["auto", "full"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One URL as a sitemap lists it; `lastmod` is in UTC, `sitemap` the address of the document."""

    url: str
    lastmod: datetime | None
    changefreq: str | None
    priority: float | None
    extras: Mapping[str, Any] | None
    sitemap: str


async def scan(
    site: str,
    *,
    max_urls: int | None = None,
    allow: Iterable[str] = (),
    user_agent: str = USER_AGENT,
    probe: Probe = "auto",
) -> AsyncGenerator[Entry, None]:
    """The entries of all sitemaps of `site`, as they are read.

    Raises a SiteatlasError with the true reason when not one sitemap could be read. `allow` names
    hosts of your own as HOST:PORT; they may be private and are read without a pause.
    """
    request = _Request.of(site, max_urls, allow, user_agent, probe)
    async with aclosing(_pieces(request)) as pieces:
        async for piece in pieces:
            for entry in piece:
                yield entry


def scan_sync(
    site: str,
    *,
    max_urls: int | None = None,
    allow: Iterable[str] = (),
    user_agent: str = USER_AGENT,
    probe: Probe = "auto",
) -> Generator[Entry, None, None]:
    """The same for programs without an event loop, and for notebooks, which have one.

    The scan runs in a thread of its own and ends with the loop that reads it, also by `break`.
    """
    request = _Request.of(site, max_urls, allow, user_agent, probe)
    with closing(_ThreadedScan(request)) as reading:
        for piece in reading.pieces():
            yield from piece


@dataclass(frozen=True, slots=True)
class _Request:
    """A checked call."""

    address: WebAddress
    policy: EgressPolicy
    options: ScanOptions
    user_agent: str

    @classmethod
    def of(
        cls,
        site: str,
        max_urls: int | None,
        allow: Iterable[str],
        user_agent: str,
        probe: Probe,
    ) -> _Request:
        _check(site, max_urls, probe)
        _check_user_agent(user_agent)
        address = parse_site(site)
        policy = _policy(allow)
        policy.check(address)
        return cls(address, policy, ScanOptions(max_urls=max_urls, probe=probe), user_agent)


def _check(site: object, max_urls: int | None, probe: object) -> None:
    """Raise InputError for values that no type checker saw."""
    if not isinstance(site, str):
        raise InputError("site must be a text such as 'example.com'.")
    if max_urls is not None and (type(max_urls) is not int or max_urls < 1):
        raise InputError("max_urls must be a whole number from 1 on, or None.")
    if probe not in get_args(Probe):
        raise InputError("probe must be 'auto' or 'full'.")


def _check_user_agent(user_agent: object) -> None:
    if not isinstance(user_agent, str) or not user_agent.strip():
        raise InputError("user_agent must be a text such as 'my-program/1.0 (me@example.com)'.")
    if len(user_agent) > LONGEST_USER_AGENT:
        raise InputError(f"user_agent must have at most {LONGEST_USER_AGENT} characters.")
    if not (user_agent.isascii() and user_agent.isprintable()):
        raise InputError("user_agent must be ASCII, on one line and without control characters.")


def _policy(allow: object) -> EgressPolicy:
    entries = [allow] if isinstance(allow, str) else allow
    if not isinstance(entries, Iterable):
        raise InputError(ALLOW_WORDS)
    texts = list(entries)
    if not all(isinstance(text, str) for text in texts):
        raise InputError(ALLOW_WORDS)
    try:
        return EgressPolicy().with_allowed(*texts)
    except ConfigurationError as error:
        raise InputError(f"allow: {error.message}") from error


# All scans of one event loop share their manners.
_politeness = PerLoop(lambda: Politeness(HOST_DELAY, HOST_CONNECTIONS))


async def _pieces(request: _Request) -> AsyncGenerator[list[Entry], None]:
    analyzer = SitemapAnalyzer(request.policy, _politeness.here(), user_agent=request.user_agent)
    async with aclosing(analyzer.scan(request.address, request.options)) as events:
        async for event in events:
            if isinstance(event, EntriesRead):
                yield _entries(event)


def _entries(event: EntriesRead) -> list[Entry]:
    columns = event.columns
    return list(
        map(
            Entry,
            columns.urls,
            columns.lastmods,
            columns.changefreqs,
            columns.priorities,
            columns.extras,
            repeat(event.url),
        )
    )


class _ThreadedScan:
    """A scan in a thread with an event loop of its own, a few pieces ahead of its reader."""

    def __init__(self, request: _Request) -> None:
        self._request = request
        self._found: SimpleQueue[list[Entry] | BaseException | None] = SimpleQueue()
        self._room = asyncio.Semaphore(PIECES_WAITING)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="siteatlas-scan", daemon=True)
        self._thread.start()

    def pieces(self) -> Iterator[list[Entry]]:
        """What was read, until the end; raises what ended it too early."""
        while (found := self._found.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            self._tell_loop(self._room.release)
            yield found

    def close(self) -> None:
        """Stop reading and wait for the thread."""
        self._started.wait()
        if self._task is not None:
            self._tell_loop(self._task.cancel)
        # At the end of the interpreter the thread stands still and would never be joined.
        if not sys.is_finalizing():
            self._thread.join()

    def _tell_loop(self, message: Callable[[], object]) -> None:
        # The loop is closed when the scan has ended by itself.
        with suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(message)

    def _run(self) -> None:
        end: BaseException | None = None
        try:
            asyncio.run(self._read())
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001 it is raised where the pieces are read
            end = error
        finally:
            self._started.set()
            self._found.put(end)

    async def _read(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._started.set()
        async with aclosing(_pieces(self._request)) as pieces:
            async for piece in pieces:
                await self._room.acquire()
                self._found.put(piece)
