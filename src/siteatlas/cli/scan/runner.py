"""Runs the scans of one or several targets and writes their output as one stream.

A target is a site, a sitemap or a local file; `ScanTargets` makes them of what was typed. An
interrupt only stops the reading: what was found so far is written as usual.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from siteatlas.aio import DaemonWorker
from siteatlas.cli.scan.messages import print_scan_error
from siteatlas.cli.scan.output import (
    DataSink,
    EntryEncoder,
    EntryFilter,
    ScanEncoders,
    SiteEncoder,
)
from siteatlas.cli.terminal.options import MAX_LINE_CHARS, STDIN
from siteatlas.cli.terminal.output import is_terminal, print_message
from siteatlas.errors import (
    InputError,
    OutputFailed,
    ScanTimeout,
    SiteatlasError,
    UrlLimitReached,
)
from siteatlas.net.address import WebAddress, parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.scanner.analyzer import SitemapAnalyzer
from siteatlas.scanner.crawl.local_file import read_local_file
from siteatlas.scanner.crawl.readers import ReaderPool, RemoteReaders
from siteatlas.scanner.events import EntriesRead, ProblemSeen, ScanEvent
from siteatlas.scanner.options import ScanOptions
from siteatlas.scanner.report import ReportBuilder
from siteatlas.text import site_in_line

MAX_CONCURRENT_SCANS = 4
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ScanTarget:
    """One thing to read; a file has no `address`."""

    name: str
    events: Callable[[], AsyncGenerator[ScanEvent, None]]
    typed: str = ""
    address: WebAddress | None = None


@dataclass(slots=True)
class ScanRun:
    """A target of `siteatlas scan` and its result; `error` is the reason if there is none."""

    target: ScanTarget
    builder: ReportBuilder
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    error: SiteatlasError | None = None

    @property
    def elapsed(self) -> float:
        """Seconds that a target of `siteatlas scan` took, or has been running."""
        return self.seconds or time.monotonic() - self.started

    def fail(self, error: SiteatlasError) -> None:
        """Record why the target has no result."""
        self.builder.report.fail(error)
        self.error = error

    def stop_at_timeout(self, seconds: float) -> None:
        """End this target at `siteatlas scan --timeout`: what was read is its result, if any."""
        fault = ScanTimeout(f"The scan was stopped after {seconds:g} seconds.")
        report = self.builder.report
        report.lose(fault.code)
        self.builder.truncate(fault)
        if any(sitemap.status == "completed" for sitemap in report.sitemaps):
            report.status = "completed"
        else:
            self.fail(fault)


class ScanRunner:
    """Runs targets against one sink. `active` and `ended` are for progress displays.

    `timeout` is in seconds and holds for each target. `hold_reports` keeps what is written for each
    site until `finish`, so that it does not run over a terminal on which a picture moves.
    """

    def __init__(
        self,
        sink: DataSink,
        form: ScanEncoders,
        wanted: EntryFilter,
        *,
        max_urls: int | None = None,
        timeout: float | None = None,
        hold_reports: bool = False,
    ) -> None:
        self.active: list[ScanRun] = []
        self.ended: list[ScanRun] = []
        self.interrupted = False
        self._sink = sink
        self._form = form
        self._wanted = wanted
        self._max_urls = max_urls
        self._timeout = timeout
        self._hold_reports = hold_reports
        self._held: list[bytes] = []
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End all reading; what was found is still written."""
        self.interrupted = True
        self._stopping.set()

    async def run(self, targets: AsyncIterator[ScanTarget]) -> None:
        """Read all targets, a few at a time; raises OutputFailed when nothing can be written."""
        self._sink.put(self._form.head)
        running: set[asyncio.Task[None]] = set()
        try:
            while (target := await self._next(targets)) is not None:
                running.add(asyncio.create_task(self._run_one(target)))
                if len(running) >= MAX_CONCURRENT_SCANS:
                    running = await _wait_for_finished_scans(running)
            while running:
                running = await _wait_for_finished_scans(running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def finish(self) -> None:
        """Write what was held back and the end of the output."""
        for data in (*self._held, self._form.tail):
            await self._write(data)

    async def _next(self, targets: AsyncIterator[ScanTarget]) -> ScanTarget | None:
        """The next target; None at the end of the list or when the runner is stopped."""

        async def read_target() -> ScanTarget | None:
            return await anext(targets, None)

        try:
            return await self._unless_stopped(read_target())
        except _Stopped:
            return None

    async def _run_one(self, target: ScanTarget) -> None:
        run = ScanRun(target, ReportBuilder(target.name))
        self.active.append(run)
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                await self._unless_stopped(self._consume(run))
        except TimeoutError:
            if self._timeout is None or not limit.expired():
                raise
            run.stop_at_timeout(self._timeout)
        except _Stopped:
            run.builder.interrupt()
        except OutputFailed:
            raise
        except SiteatlasError as error:
            run.fail(error)
        run.seconds = run.elapsed
        run.builder.sort_sitemaps()
        self.active.remove(run)
        self.ended.append(run)
        data = self._form.report(run.builder.report)
        if self._hold_reports:
            self._held.append(data)
        else:
            await self._write(data)

    async def _consume(self, run: ScanRun) -> None:
        builder, sink, encode = run.builder, self._sink, self._form.entries
        async with aclosing(run.target.events()) as events:
            async for event in events:
                wanted = self._wanted_of(event, builder)
                await sink.ready()
                # No pause from here on, so that an interrupt cannot part count and output.
                builder.observe(wanted)
                if isinstance(wanted, EntriesRead):
                    encoded = wanted.encoded
                    sink.put(encoded.data if encoded else encode(run.target.name, wanted))
                    if builder.report.url_count == self._max_urls:
                        builder.observe(ProblemSeen(UrlLimitReached.code))
                        builder.truncate(UrlLimitReached())
                        break
        builder.report.status = "completed"

    def _wanted_of(self, event: ScanEvent, builder: ReportBuilder) -> ScanEvent:
        if not isinstance(event, EntriesRead) or self._wanted.keeps_all:
            return event
        if event.encoded is not None:
            self._wanted.count_encoded(event.encoded)
            return event
        columns = self._wanted.apply(event.columns)
        if self._max_urls is not None:
            columns = columns.head(self._max_urls - builder.report.url_count)
        return EntriesRead(event.url, columns)

    async def _write(self, data: bytes) -> None:
        await self._sink.ready()
        self._sink.put(data)

    async def _unless_stopped(self, work: Coroutine[object, object, Result]) -> Result:
        if self._stopping.is_set():
            work.close()
            raise _Stopped
        task = asyncio.create_task(work)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([task, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise _Stopped
            return task.result()
        finally:
            stopping.cancel()
            task.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)


async def _wait_for_finished_scans(running: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return running


class _Stopped(Exception):
    """The runner was stopped before the work ended."""


class ScanTargets:
    """Turns arguments into targets. Addresses are checked before any request.

    `usual` is the policy of other commands, without what was allowed for this scan. With `only`,
    an address means the one document there. `readers`, if set, may read documents of the sites.
    """

    def __init__(
        self,
        analyzer: SitemapAnalyzer,
        policy: EgressPolicy,
        usual: EgressPolicy,
        options: ScanOptions,
        *,
        only: bool = False,
    ) -> None:
        self._analyzer = analyzer
        self.policy = policy
        self._usual = usual
        self._options = options
        self._only = only
        self.worst_refusal = 0
        self.readers: ScanReaders | None = None

    def of(self, text: str) -> ScanTarget:
        """The target of an argument; raises InputError for what is neither file nor site."""
        path = local_path(text)
        if path is None:
            return self._site_target(text)
        if may_be_site(text):
            print_message(f"Reading the file {text}. The site of this name would be https://{text}")
        return ScanTarget(str(path), lambda: read_local_file(path, self._options), text)

    async def listed(self, sites: Sequence[str] = (STDIN,)) -> AsyncIterator[ScanTarget]:
        """The targets given as arguments or on stdin, without duplicates.

        An invalid one is reported, recorded in `worst_refusal` and skipped.
        """
        from_stdin = list(sites) == [STDIN]
        seen: set[str] = set()
        async for text in _stdin_sites() if from_stdin else _argument_sites(sites):
            try:
                target = self._site_target(text) if from_stdin else self.of(text)
            except InputError as error:
                print_scan_error(error, text, self.policy, may_be_file=not from_stdin)
                self.worst_refusal = max(self.worst_refusal, error.exit_code)
                continue
            if target.name not in seen:
                seen.add(target.name)
                yield target

    def say_how_to_watch(self, address: WebAddress) -> None:
        """Print the command that watches a site, with all that this scan was allowed."""
        command = f"siteatlas domains add {address.domain}"
        if self.policy == self._usual or not self.policy.is_listed(address.host, address.port):
            print_message(f"Watch this site: {command}")
            return
        entries = shlex.quote(",".join(self.policy.entries))
        print_message(f"Watch this site: SITEATLAS_EGRESS_ALLOW={entries} {command}")
        print_message("The service that scans it needs the same SITEATLAS_EGRESS_ALLOW.")

    def _site_target(self, text: str) -> ScanTarget:
        address = parse_site(text)
        self.policy.check(address)
        name = address.domain if address.is_site_root else address.url
        options = self._options
        if self._only:
            if address.is_site_root:
                raise InputError(
                    "--only needs the address of a sitemap, such as https://example.com/sitemap.xml."
                )
            options = replace(options, only_document=address.url)

        def events() -> AsyncGenerator[ScanEvent, None]:
            readers = self.readers.of_site(name) if self.readers else None
            return self._analyzer.scan(address, options, readers=readers)

        return ScanTarget(name, events, text, address)


async def single_target(target: ScanTarget) -> AsyncIterator[ScanTarget]:
    yield target


async def _argument_sites(sites: Sequence[str]) -> AsyncIterator[str]:
    for site in sites:
        yield site


async def _stdin_sites() -> AsyncIterator[str]:
    if is_terminal(sys.stdin):
        print_message("Type one site per line; press Ctrl-D to finish.")
    thread = DaemonWorker("list")
    while line := await thread.submit(lambda: sys.stdin.buffer.readline(MAX_LINE_CHARS)):
        if site := site_in_line(line):
            yield site


PATH_STARTS = ("./", "../", "/", "~/")


def local_path(text: str) -> Path | None:
    """The local file that a target of `siteatlas scan` names; None if it names a site.

    A path is a file, and so is the bare name of one that exists. A directory is refused, unless
    its bare name may be a site: mirrors are kept in folders such as `example.com`.
    """
    is_path = text.startswith(PATH_STARTS)
    path = Path(text).expanduser() if is_path else Path(text)
    if (is_path or "." not in text.strip(".")) and text and os.path.isdir(path):  # noqa: PTH112
        raise InputError(f"{text} is a directory, not a file.")
    # Unlike its counterpart in pathlib, this does not raise for a name that is too long.
    return path if is_path or os.path.isfile(path) else None  # noqa: PTH113


def may_be_site(text: str) -> bool:
    """Whether a target of `siteatlas scan` that is a file could also be the name of a site."""
    sitemap_endings = (".xml", ".gz", ".txt", ".rss", ".atom")
    is_file_only = text.startswith(PATH_STARTS) or text.lower().endswith(sitemap_endings)
    return "." in text and not is_file_only


class ScanReaders(NamedTuple):
    """The reader processes of one command, for all its sites."""

    pool: ReaderPool
    encode: EntryEncoder
    wanted: EntryFilter

    def of_site(self, site: str) -> RemoteReaders:
        return RemoteReaders(self.pool, SiteEncoder(site, self.encode, self.wanted))


def reader_count(processes: int | None, max_urls: int | None) -> int:
    """How many processes may read documents beside the first one.

    None of them with `--max-urls`: they would read more than is wanted.
    """
    if max_urls is not None:
        return 0
    if processes is not None:
        return processes - 1
    # Each takes 34 MB; with a second one, a scan would need all the memory that it may take.
    return min(1, _cores() - 1)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
