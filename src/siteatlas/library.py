"""The Python API: iterates over the entries of a site's sitemaps, without a database.

`scan` is for asynchronous programs, `scan_sync` for all others. Both read only as fast as the
caller iterates, stop when the caller stops, and report what could not be read.
`library_arguments` checks their arguments.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import warnings
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import aclosing, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime
from itertools import repeat, starmap
from queue import SimpleQueue
from typing import Any

from siteatlas.aio.loop_local import LoopLocal
from siteatlas.errors import PartialScan, SiteatlasError
from siteatlas.library_arguments import Probe, ScanCall, check_call
from siteatlas.net.politeness import Politeness
from siteatlas.scanner.analyzer import USER_AGENT, SitemapAnalyzer
from siteatlas.scanner.events import EntriesRead, ScanEvent
from siteatlas.scanner.reading.lastmod_text import listed_texts
from siteatlas.scanner.report import ReportBuilder, ScanReport

__all__ = [
    "AsyncScan",
    "Entry",
    "PartialScanWarning",
    "ScanReport",
    "SyncScan",
    "scan",
    "scan_sync",
]

MAX_QUEUED_EVENTS = 4


@dataclass(frozen=True, slots=True)
class Entry:
    """One URL as listed; `lastmod` is in UTC, its text None where that is a full timestamp."""

    url: str
    lastmod: datetime | None
    changefreq: str | None
    priority: float | None
    extras: Mapping[str, Any] | None
    sitemap: str
    lastmod_text: str | None = None


class PartialScanWarning(UserWarning):
    """Some sitemaps of the site could not be read completely; `report` says which."""

    def __init__(self, report: ScanReport) -> None:
        super().__init__(_partial_scan_message(report))
        self.report = report


class AsyncScan(AsyncIterable[Entry]):
    """The entries of a scan that is read with `async for`, and its report."""

    def __init__(self, call: ScanCall) -> None:
        self._builder = ReportBuilder(call.report_name)
        self._entries = _scan_entries(call, self._builder)

    @property
    def report(self) -> ScanReport:
        """What was read so far; `status` is `processing` until the last entry was returned."""
        return self._builder.report

    def __aiter__(self) -> AsyncIterator[Entry]:
        return self._entries

    def __anext__(self) -> Awaitable[Entry]:
        return anext(self._entries)

    async def aclose(self) -> None:
        """End the scan of this library call, if it still runs."""
        await self._entries.aclose()


class SyncScan(Iterable[Entry]):
    """The entries of a scan that is read with `for`, and its report."""

    def __init__(self, call: ScanCall) -> None:
        self._builder = ReportBuilder(call.report_name)
        self._entries = _scan_sync_entries(call, self._builder)

    @property
    def report(self) -> ScanReport:
        """What was read so far; `status` is `processing` until the last entry was returned."""
        return self._builder.report

    def __iter__(self) -> Iterator[Entry]:
        return self._entries

    def __next__(self) -> Entry:
        return next(self._entries)

    def close(self) -> None:
        """End the scan, if it still runs."""
        self._entries.close()


def scan(
    site: str,
    *,
    only: bool = False,
    max_urls: int | None = None,
    allow: Iterable[str] = (),
    user_agent: str = USER_AGENT,
    probe: Probe = "auto",
    strict: bool = False,
    sitemaps: Iterable[str] = (),
    skip_sitemaps: Iterable[str] = (),
    sitemaps_since: date | None = None,
) -> AsyncScan:
    """The entries of all sitemaps of `site`, as they are read; `only` reads just the one named.

    Reading them raises a SiteatlasError with the true reason when not one sitemap could be read.
    When some could not be read completely, a PartialScanWarning comes after the last entry, or
    PartialScan is raised if `strict`. `allow` names hosts of your own as HOST:PORT; they may be
    private and are read without a pause.

    Of the children of an index, only those are read whose addresses match one of the patterns
    `sitemaps`, if any, and none of `skip_sitemaps`, and whose `lastmod`, if any, is not before
    `sitemaps_since`.
    """
    return AsyncScan(
        check_call(
            site,
            only=only,
            max_urls=max_urls,
            allow=allow,
            user_agent=user_agent,
            probe=probe,
            strict=strict,
            sitemaps=sitemaps,
            skip_sitemaps=skip_sitemaps,
            sitemaps_since=sitemaps_since,
        )
    )


def scan_sync(
    site: str,
    *,
    only: bool = False,
    max_urls: int | None = None,
    allow: Iterable[str] = (),
    user_agent: str = USER_AGENT,
    probe: Probe = "auto",
    strict: bool = False,
    sitemaps: Iterable[str] = (),
    skip_sitemaps: Iterable[str] = (),
    sitemaps_since: date | None = None,
) -> SyncScan:
    """Like `scan`, for programs without an event loop, and for notebooks, which have one.

    The scan runs in a separate thread and ends with the loop that reads it, even on `break`.
    """
    return SyncScan(
        check_call(
            site,
            only=only,
            max_urls=max_urls,
            allow=allow,
            user_agent=user_agent,
            probe=probe,
            strict=strict,
            sitemaps=sitemaps,
            skip_sitemaps=skip_sitemaps,
            sitemaps_since=sitemaps_since,
        )
    )


# All scans of one event loop share their politeness.
_politeness = LoopLocal(Politeness)


def _scan_events(call: ScanCall) -> AsyncGenerator[ScanEvent, None]:
    """The scanner events of one call of `scan` or `scan_sync`."""
    analyzer = SitemapAnalyzer(call.policy, _politeness.get(), user_agent=call.user_agent)
    return analyzer.scan(call.address, call.options)


async def _scan_entries(call: ScanCall, builder: ReportBuilder) -> AsyncGenerator[Entry, None]:
    """The entries that `scan` returns; each event is also added to its report."""
    with _report_outcome(builder):
        async with aclosing(_scan_events(call)) as events:
            async for event in events:
                builder.observe(event)
                if isinstance(event, EntriesRead):
                    for entry in _entries_of_event(event):
                        yield entry
    _check_complete(call, builder.report)


def _scan_sync_entries(call: ScanCall, builder: ReportBuilder) -> Generator[Entry, None, None]:
    """The entries that `scan_sync` returns; each event is also added to its report."""
    with _report_outcome(builder), closing(_ThreadedScan(call)) as reading:
        for event in reading.thread_events():
            builder.observe(event)
            if isinstance(event, EntriesRead):
                yield from _entries_of_event(event)
    _check_complete(call, builder.report)


@contextmanager
def _report_outcome(builder: ReportBuilder) -> Iterator[None]:
    """Record in the report of `scan` or `scan_sync` how the block ended."""
    try:
        yield
    except SiteatlasError as error:
        builder.report.fail(error)
        raise
    except BaseException:
        builder.interrupt()
        raise
    else:
        builder.report.status = "completed"
    finally:
        builder.sort_sitemaps()


def _check_complete(call: ScanCall, report: ScanReport) -> None:
    """Warn of an incomplete result, or raise if the caller is strict.

    Reaching the caller's own limit, or using a filter, causes no warning.
    """
    if set(report.reasons) <= call.expected_reasons:
        return
    if call.strict:
        raise PartialScan(_partial_scan_message(report), report=report)
    # Past the generator, to the line that reads it.
    warnings.warn(PartialScanWarning(report), stacklevel=3)


def _partial_scan_message(report: ScanReport) -> str:
    """The message of `PartialScan` and `PartialScanWarning`."""
    return f"The scan of {report.site} is partial: {', '.join(report.reasons)}."


def _entries_of_event(event: EntriesRead) -> list[Entry]:
    """The entries that `scan` and `scan_sync` return for one scanner event."""
    columns = event.columns
    texts = listed_texts(columns.lastmods, columns.listed_lastmods())
    return list(starmap(Entry, columns.rows(repeat(event.url, len(columns)), texts)))


class _ThreadedScan:
    """The scan of `scan_sync`: in a thread with its own event loop, a few events ahead."""

    def __init__(self, call: ScanCall) -> None:
        self._call = call
        self._found: SimpleQueue[ScanEvent | BaseException | None] = SimpleQueue()
        self._room = asyncio.Semaphore(MAX_QUEUED_EVENTS)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run_thread, name="siteatlas-scan", daemon=True)
        self._thread.start()

    def thread_events(self) -> Iterator[ScanEvent]:
        """The events from the thread of `scan_sync`; raises the error that ended the scan."""
        while (found := self._found.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            self._call_in_scan_thread(self._room.release)
            yield found

    def close(self) -> None:
        """Stop the scan of `scan_sync` and wait for its thread."""
        self._started.wait()
        if self._task is not None:
            self._call_in_scan_thread(self._task.cancel)
        # At the end of the interpreter the thread stands still and would never be joined.
        if not sys.is_finalizing():
            self._thread.join()

    def _call_in_scan_thread(self, callback: Callable[[], object]) -> None:
        """Call a function in the event loop of the thread of `scan_sync`."""
        # The loop is closed if the scan has already ended.
        with suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(callback)

    def _run_thread(self) -> None:
        """The thread of `scan_sync`: run the scan and pass on its events and its error."""
        end: BaseException | None = None
        try:
            asyncio.run(self._produce_thread_events())
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001 it is raised where the events are read
            end = error
        finally:
            self._started.set()
            self._found.put(end)

    async def _produce_thread_events(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._started.set()
        async with aclosing(_scan_events(self._call)) as events:
            async for event in events:
                await self._room.acquire()
                self._found.put(event)
