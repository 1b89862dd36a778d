"""Runs the scans of one or several targets and writes their output as one stream.

An interrupt only stops the reading: what was found so far is written as usual.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeVar

from siteatlas.cli.scanning.entry_filter import EntryFilter
from siteatlas.cli.scanning.formats import ScanEncoders
from siteatlas.cli.scanning.sinks import DataSink
from siteatlas.cli.scanning.targets import ScanTarget
from siteatlas.errors import OutputFailed, ScanTimeout, SiteatlasError, UrlLimitReached
from siteatlas.scanner.events import EntriesRead, ProblemSeen, ScanEvent
from siteatlas.scanner.report import ReportBuilder

MAX_CONCURRENT_SCANS = 4

Result = TypeVar("Result")


class _Stopped(Exception):
    """The runner was stopped before the work ended."""


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
            """Wait for the next target of `siteatlas scan`."""
            return await anext(targets, None)

        try:
            return await self._unless_stopped(read_target())
        except _Stopped:
            return None

    async def _run_one(self, target: ScanTarget) -> None:
        """Scan one target of `siteatlas scan` within its timeout and write its report."""
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
        """Read the events of a target, build its report and write the entries that are kept."""
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
        """A scan event, reduced to the entries that the filters and `--max-urls` keep."""
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
        """Write a chunk of scan output as soon as the sink is ready."""
        await self._sink.ready()
        self._sink.put(data)

    async def _unless_stopped(self, work: Coroutine[object, object, Result]) -> Result:
        """The result of `work`, which is cancelled if the runner is stopped first."""
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
    """Wait until one of the concurrently running targets has ended; the others are returned."""
    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return running
