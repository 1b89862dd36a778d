"""The Python API: iterates over the entries of a site's sitemaps, without a database.

`scan` is for asynchronous programs, `scan_sync` for all others. Both read only as fast as the
caller iterates, stop when the caller stops, and report what could not be read.
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
from datetime import UTC, date, datetime
from itertools import repeat, starmap
from queue import SimpleQueue
from typing import Any, get_args

from siteatlas.aio import LoopLocal
from siteatlas.errors import (
    ConfigurationError,
    EgressDenied,
    InputError,
    PartialScan,
    SiteatlasError,
    UrlLimitReached,
)
from siteatlas.net.address import WebAddress, parse_site
from siteatlas.net.client import Politeness
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.gate import Gate
from siteatlas.scanner.analyzer import USER_AGENT, SitemapAnalyzer
from siteatlas.scanner.events import EntriesRead, ScanEvent
from siteatlas.scanner.options import ChildFilter, Probe, ScanOptions
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.entries import listed_texts
from siteatlas.scanner.report import ReportBuilder, ScanReport
from siteatlas.settings import load_settings

__all__ = [
    "AsyncScan",
    "Entry",
    "PartialScanWarning",
    "ScanReport",
    "SyncScan",
    "scan",
    "scan_sync",
]

MAX_USER_AGENT_CHARS = 400


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
    PartialScan is raised if `strict`. `allow` names hosts of your own as HOST or HOST:PORT, beside
    those in SITEATLAS_EGRESS_ALLOW; they may be private and are read without a pause.

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


class PartialScanWarning(UserWarning):
    """Some sitemaps of the site could not be read completely; `report` says which."""

    def __init__(self, report: ScanReport) -> None:
        super().__init__(f"The scan of {report.site} is partial: {', '.join(report.reasons)}.")
        self.report = report


async def _scan_entries(call: ScanCall, builder: ReportBuilder) -> AsyncGenerator[Entry, None]:
    with _report_outcome(builder, call):
        async with aclosing(_scan_events(call)) as events:
            async for event in events:
                builder.observe(event)
                if isinstance(event, EntriesRead):
                    for entry in _entries_of_event(event):
                        yield entry
    _check_complete(call, builder.report)


def _scan_sync_entries(call: ScanCall, builder: ReportBuilder) -> Generator[Entry, None, None]:
    with _report_outcome(builder, call), closing(_ThreadedScan(call)) as reading:
        for event in reading.events():
            builder.observe(event)
            if isinstance(event, EntriesRead):
                yield from _entries_of_event(event)
    _check_complete(call, builder.report)


# All scans of one event loop share their connections and their politeness.
_gate = LoopLocal(Gate)
_politeness = LoopLocal(Politeness)


def _scan_events(call: ScanCall) -> AsyncGenerator[ScanEvent, None]:
    analyzer = SitemapAnalyzer(
        call.policy, _politeness.get(), user_agent=call.user_agent, gate=_gate.get()
    )
    return analyzer.scan(call.address, call.options)


def _entries_of_event(event: EntriesRead) -> list[Entry]:
    columns = event.columns
    texts = listed_texts(columns.lastmods, columns.listed_lastmods())
    return list(starmap(Entry, columns.rows(repeat(event.url, len(columns)), texts)))


@contextmanager
def _report_outcome(builder: ReportBuilder, call: ScanCall) -> Iterator[None]:
    try:
        yield
    except EgressDenied as denied:
        error = _explained(denied, call.policy, call.address)
        builder.report.fail(error)
        raise error from denied
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
    warning = PartialScanWarning(report)
    if call.strict:
        raise PartialScan(str(warning), report=report)
    # Past the generator, to the line that reads it.
    warnings.warn(warning, stacklevel=3)


class _ThreadedScan:
    """The scan of `scan_sync`: in a thread with its own event loop, a few events ahead."""

    def __init__(self, call: ScanCall) -> None:
        self._call = call
        self._found: SimpleQueue[ScanEvent | BaseException | None] = SimpleQueue()
        self._room = asyncio.Semaphore(4)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run_thread, name="siteatlas-scan", daemon=True)
        self._thread.start()

    def events(self) -> Iterator[ScanEvent]:
        while (found := self._found.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            self._call_in_loop(self._room.release)
            yield found

    def close(self) -> None:
        self._started.wait()
        if self._task is not None:
            self._call_in_loop(self._task.cancel)
        # At the end of the interpreter the thread stands still and would never be joined.
        if not sys.is_finalizing():
            self._thread.join()

    def _call_in_loop(self, callback: Callable[[], object]) -> None:
        # The loop is closed if the scan has already ended.
        with suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(callback)

    def _run_thread(self) -> None:
        end: BaseException | None = None
        try:
            asyncio.run(self._produce_events())
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001 it is raised where the events are read
            end = error
        finally:
            self._started.set()
            self._found.put(end)

    async def _produce_events(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._started.set()
        async with aclosing(_scan_events(self._call)) as events:
            async for event in events:
                await self._room.acquire()
                self._found.put(event)


@dataclass(frozen=True, slots=True)
class ScanCall:
    """The checked arguments of a call of `scan` or `scan_sync`."""

    address: WebAddress
    policy: EgressPolicy
    options: ScanOptions
    user_agent: str
    strict: bool

    @property
    def report_name(self) -> str:
        """The name of the site in the report of `scan` and `scan_sync`."""
        return self.address.domain if self.address.is_site_root else self.address.url

    @property
    def expected_reasons(self) -> set[str]:
        """Why the result of `scan` and `scan_sync` may be partial as the caller requested it."""
        expected: set[str] = set()
        if self.options.max_urls is not None:
            expected.add(UrlLimitReached.code)
        if self.options.child_filter is not None:
            expected.add(ProblemCode.SITEMAPS_FILTERED.value)
        return expected


def check_call(
    site: str,
    *,
    only: bool,
    max_urls: int | None,
    allow: Iterable[str],
    user_agent: str,
    probe: Probe,
    strict: bool,
    sitemaps: Iterable[str],
    skip_sitemaps: Iterable[str],
    sitemaps_since: date | None,
) -> ScanCall:
    """Check the arguments of `scan` or `scan_sync`; raise InputError for invalid ones."""
    _check_types(site, max_urls, probe, only=only, strict=strict)
    _check_user_agent(user_agent)
    address = parse_site(site)
    policy = _allow_policy(allow)
    try:
        policy.check(address)
    except EgressDenied as denied:
        raise _explained(denied, policy, address) from denied
    if only and address.is_site_root:
        raise InputError("only=True needs the address of a sitemap, not of a site.")
    document = address.url if only else None
    child_filter = ChildFilter.of(
        _text_list("sitemaps", sitemaps, "*/blog-*"),
        _text_list("skip_sitemaps", skip_sitemaps, "*/blog-*"),
        _since_time(sitemaps_since),
    )
    options = ScanOptions(
        max_urls=max_urls, probe=probe, only_document=document, child_filter=child_filter
    )
    return ScanCall(address, policy, options, user_agent, strict)


def _check_types(site: object, max_urls: int | None, probe: object, **flags: object) -> None:
    if not isinstance(site, str):
        raise InputError("site must be a string such as 'example.com'.")
    if max_urls is not None and (type(max_urls) is not int or max_urls < 1):
        raise InputError("max_urls must be a positive integer, or None.")
    if probe not in get_args(Probe):
        raise InputError("probe must be 'quick', 'auto' or 'full'.")
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InputError(f"{name} must be True or False.")


def _check_user_agent(user_agent: object) -> None:
    if not isinstance(user_agent, str) or not user_agent.strip():
        raise InputError("user_agent must be a string such as 'my-program/1.0 (me@example.com)'.")
    if len(user_agent) > MAX_USER_AGENT_CHARS:
        raise InputError(f"user_agent must have at most {MAX_USER_AGENT_CHARS} characters.")
    if not (user_agent.isascii() and user_agent.isprintable()):
        raise InputError("user_agent must be ASCII, on one line and without control characters.")


def _text_list(name: str, given: object, example: str) -> list[str]:
    listed = [given] if isinstance(given, str) else given
    texts = list(listed) if isinstance(listed, Iterable) else [None]
    found = [text for text in texts if isinstance(text, str)]
    if len(found) != len(texts):
        raise InputError(f"{name} must be a list of strings such as '{example}'.")
    return found


def _since_time(since: object) -> datetime | None:
    """A date is its midnight."""
    if since is None or isinstance(since, datetime):
        return since
    if not isinstance(since, date):
        raise InputError("sitemaps_since must be a date or a datetime, or None.")
    return datetime(since.year, since.month, since.day, tzinfo=UTC)


def _explained(denied: EgressDenied, policy: EgressPolicy, site: WebAddress) -> EgressDenied:
    """The error with the host, and what to write to allow it."""
    why, entry = policy.explain(denied, site)
    advice = f" If it is yours: allow=[{entry!r}]" if entry else ""
    message = f"{site.domain}: {denied.message.removesuffix('.')}: {why}{advice}"
    return EgressDenied(message, at=denied.at)


def _allow_policy(allow: object) -> EgressPolicy:
    hosts = _text_list("allow", allow, "127.0.0.1:8000")
    usual = EgressPolicy.from_text(load_settings().settings.egress_allow)
    try:
        return usual.with_allowed(*hosts)
    except ConfigurationError as error:
        raise InputError(f"allow: {error.message}") from error
