"""Turns the events of a scan into rows and collects them in batches.

A batch is written while the next one is collected, so a slow database slows the reading down.
`steps` owns the writing, `publication` the final status of the job.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, assert_never
from uuid import UUID

from siteatlas.aio import background_task, fair_loop
from siteatlas.catalog.findings import Judged
from siteatlas.catalog.sitemaps import DONE, look_up_sitemaps
from siteatlas.catalog.urls import url_hash
from siteatlas.catalog.write_batch import WriteBatch
from siteatlas.findings.document import DocumentJudge
from siteatlas.findings.judging import Finding
from siteatlas.findings.rules import RULES_VERSION
from siteatlas.hash_arrays import FEW_ARRAYS, HashArrays
from siteatlas.logs import get_logger
from siteatlas.meters import meters
from siteatlas.processor.comparison import conclude, is_silent, record_entries, shows_all_children
from siteatlas.processor.documents import (
    DocumentRegistry,
    OpenedScan,
    ScannedDocument,
    short_id,
)
from siteatlas.processor.entries import EntryMemoryBudget
from siteatlas.processor.steps import BatchWriter, FinishedScan, JobActivity, ProgressSnapshot
from siteatlas.queue.fence import Claim
from siteatlas.scanner.events import (
    CandidateJudged,
    ChildLink,
    ChildrenFound,
    DiscoveryMethod,
    DocumentClosed,
    DocumentOpened,
    DocumentOutcome,
    DocumentRequested,
    EntriesRead,
    ProblemSeen,
    RobotsRead,
    ScanEvent,
    SitemapsSkipped,
    SitemapType,
    SiteResolved,
)
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.storage.session import get_job_session
from siteatlas.text import storable

log = get_logger("processor")

FLUSH_ROWS = 5_000
# As many as one statement writes.
FLUSH_DOCUMENTS_WHEN_SPENT = 200
CHILDREN_PER_CHUNK = 50
FLUSH_SECONDS = 2.0
START_PROGRESS = 0.05
READING_PROGRESS = 0.9


async def record_events(
    events: AsyncIterator[ScanEvent], recorder: Recorder, activity: JobActivity
) -> None:
    async with background_task(recorder.write_when_idle()):
        async for event in events:
            activity.record_event()
            await recorder.record(event)


# The former name.
store_domain_data = record_events


class Recorder:
    """Records one scan for one claim. `record` each event, then `finish`; `abandon` always."""

    def __init__(
        self,
        claim: Claim,
        scan: OpenedScan,
        activity: JobActivity,
        *,
        lease_seconds: float,
        budget: EntryMemoryBudget,
    ) -> None:
        self._claim = claim
        self._scan = scan
        self._activity = activity
        self._budget = budget
        self._documents = DocumentRegistry(scan.known.values())
        self._batch = WriteBatch()
        self._held_bytes = 0
        self._batch_started = time.monotonic()
        self._recording = asyncio.Lock()
        self._writer = BatchWriter(
            claim, scan, lease_seconds=lease_seconds, on_committed=self._on_committed
        )
        self._knows_all_documents = len(scan.known) >= scan.stored_count
        done = [sitemap for sitemap in scan.known.values() if sitemap.state in DONE]
        self._listed, self._ended = HashArrays(FEW_ARRAYS), HashArrays(FEW_ARRAYS)
        for sitemap in done:
            self._listed.add(short_id(sitemap.id))
            self._ended.add(short_id(sitemap.id))
        self._origin: str | None = None
        self._ip: str | None = None
        self._robots: dict[str, RobotsRead] = {}
        self._judges: dict[UUID, DocumentJudge] = {}
        self._skipped_sitemaps: SitemapsSkipped | None = None
        self.reasons: list[str] = []
        self.url_count = sum(sitemap.read_count for sitemap in done)

    async def record(self, event: ScanEvent) -> None:
        """Record one event; safe while `write_when_idle` runs."""
        async with self._recording:
            match event:
                case RobotsRead():
                    log_robots(event)
                    self._robots[event.url] = event
                case SiteResolved():
                    self._batch.origin = self._origin = event.origin
                    self._ip = event.ip
                case CandidateJudged():
                    self._record_candidate(event)
                case ProblemSeen() | SitemapsSkipped():
                    self._record_problem(event)
                case DocumentRequested():
                    pass  # used only for live progress
                case DocumentOpened():
                    await self._open_document(event)
                case ChildrenFound():
                    await self._record_children(event)
                case EntriesRead():
                    await self._record_entries(event)
                case DocumentClosed():
                    await self._close_document(event)
                case _:
                    assert_never(event)

    async def write_when_idle(self) -> None:
        """Write the batch when no event arrives for a while, until cancelled.

        A job may wait long for its site; meanwhile its unwritten rows would use up the shared
        memory budget. A failed write is raised when the next event is recorded.
        """
        while True:
            await asyncio.sleep(2.0)
            async with self._recording:
                await self._flush_batch_when_due()

    def _record_candidate(self, event: CandidateJudged) -> None:
        if event.reason == ProblemCode.DONE_BEFORE:
            return  # an earlier attempt at this scan recorded more detail
        url = storable(event.url)
        key = url_hash(url)
        self._batch.candidates[key] = {
            "domain_id": self._scan.domain_id,
            "url_hash": key,
            "url": url,
            "method": event.method.value,
            "verdict": event.verdict.value,
            "reason": event.reason,
            "type": event.type.value if event.type else None,
            "http_status": event.http_status,
            "scan_id": self._scan.id,
        }

    def _record_problem(self, event: ProblemSeen | SitemapsSkipped) -> None:
        if isinstance(event, SitemapsSkipped):
            self._skipped_sitemaps = event
            return
        log.warning("scan_problem", code=event.code, url=event.url, detail=event.detail)
        self._record_partial_reason(event.code)

    async def _open_document(self, event: DocumentOpened) -> None:
        await self._look_up([event.url, event.requested_url])
        document = self._resolve_redirect(event.url, event.requested_url, event.method)
        document.found_by(event.method)
        document.changes |= {"type": event.type.value, "http_status": event.http_status}
        if event.listed_lastmod is not None:
            document.changes["lastmod"] = event.listed_lastmod
        await self._documents.open(document, self._budget.documents)
        document.clear_validators()
        self._add_pending(document)
        self._batch.opened[document.id] = event.http_status
        self._add_link_to_batch(event.parent_url, document)

    async def _record_children(self, event: ChildrenFound) -> None:
        await self._look_up([child.url for child in event.children])
        if (document := self._documents.find(event.url)) is not None:
            self._judge_of(document).add_children(event.children)
        for first in range(0, len(event.children), CHILDREN_PER_CHUNK):
            async with fair_loop().time_slice():
                for child in event.children[first : first + CHILDREN_PER_CHUNK]:
                    self._record_child(event.url, child)
            await self._flush_batch_when_due()

    def _record_child(self, parent_url: str, child: ChildLink) -> None:
        document = self._documents.listed(child.url, DiscoveryMethod.SITEMAP_INDEX)
        if child.lastmod is not None:
            document.changes["lastmod"] = child.lastmod
        self._add_pending(document)
        self._add_link_to_batch(parent_url, document)

    async def _record_entries(self, event: EntriesRead) -> None:
        document = self._documents.find(event.url)
        assert document is not None
        await document.wait_loaded()
        async with fair_loop().time_slice():
            record_entries(document, event, self._batch)
            self._judge_of(document).add_entries(event.columns)
        self._report_changes(document)
        document.flag_extras(event.columns.extras)
        self.url_count += event.entry_count
        meters.urls += event.entry_count
        await self._flush_batch_when_due()

    async def _close_document(self, event: DocumentClosed) -> None:
        await self._look_up([event.url, event.requested_url])
        document = self._resolve_redirect(event.url, event.requested_url, event.method)
        document.found_by(event.method)
        await document.wait_loaded()
        conclude(document, event, self._scan, self._batch)
        self._report_changes(document)
        self._replace_links(document, event)
        self._documents.close(document, event)
        self._judge(document)
        self._add_pending(document)
        self._add_link_to_batch(event.parent_url, document)
        self._add_to_batch(document)
        self._batch.opened.pop(document.id, None)
        self._batch.closed[document.id] = document.scan_row()
        self._batch.problems += document.found_problems()
        if event.outcome is DocumentOutcome.COMPLETE and not document.fresh:
            self._batch.read_completely.add(document.id)
        self._ended.add(short_id(document.id))
        if event.outcome in (DocumentOutcome.CUT, DocumentOutcome.UNREAD):
            self._record_partial_reason(event.error_code or event.outcome.value)
        log_and_count(event)
        await self._flush_batch_when_due()

    def _judge_of(self, document: ScannedDocument) -> DocumentJudge:
        if document.id not in self._judges:
            self._judges[document.id] = DocumentJudge(document.url, datetime.now(UTC))
        return self._judges[document.id]

    def _judge(self, document: ScannedDocument) -> None:
        """Judge a closed document by what was read; one that is unchanged was judged before."""
        assert document.closed is not None
        judge, outcome = self._judge_of(document), document.closed.outcome
        del self._judges[document.id]
        findings: list[Finding] = []
        if outcome is not DocumentOutcome.UNCHANGED:
            trusted = document.changes.get("lastmod_trusted", True)
            judge.judge_moved_dates(document.changes.get("lastmod_streak", 0), trusted=trusted)
            findings = judge.close(document.closed)
        if outcome is DocumentOutcome.COMPLETE:
            document.changes["rules_version"] = RULES_VERSION
        self._batch.judged[document.id] = Judged(
            document.id, findings, outcome, is_new=document.fresh
        )

    def _report_changes(self, document: ScannedDocument) -> None:
        """Let the changes of the entries of a document be recorded, unless its read is silent."""
        if document.memory is not None and not is_silent(document, self._scan):
            self._batch.reported[document.id] = document.last_read.last_complete_at

    def _replace_links(self, document: ScannedDocument, event: DocumentClosed) -> None:
        """Let what a completely read index no longer lists be unlinked from it.

        It may have become a list of pages.
        """
        was_index = SitemapType.INDEX in (event.type, document.last_read.type)
        if was_index and shows_all_children(event, self.reasons):
            self._batch.children[document.id] = document.listed_children()

    async def _look_up(self, urls: Sequence[str]) -> None:
        """Load these documents if the domain has too many to load them all at the start."""
        if self._knows_all_documents:
            return
        hashes = [url_hash(url) for url in urls if self._documents.id_of(url) is None]
        if not hashes:
            return
        async with get_job_session() as session, session.begin():
            found = await look_up_sitemaps(session, self._scan.domain_id, self._scan.id, hashes)
        self._documents.learn(found)

    def _resolve_redirect(
        self, url: str, requested_url: str, method: DiscoveryMethod
    ) -> ScannedDocument:
        listed = self._documents.find(requested_url)
        document = self._documents.resolve_redirect(url, requested_url, method)
        # A redirect led to another document. A row of the listed one would stay pending forever
        # and be loaded by every later scan (decision 0009). Once written, it is closed at the end.
        if listed is not None and listed is not document and not listed.stored:
            self._batch.new_sitemaps.pop(listed.id, None)
            self._batch.links = {link for link in self._batch.links if listed.id not in link}
            self._batch.pending = [i for i in self._batch.pending if i != listed.id]
            self._listed.discard(short_id(listed.id))
        return document

    def _add_pending(self, document: ScannedDocument) -> None:
        self._add_to_batch(document)
        if self._listed.add(short_id(document.id)):
            self._batch.pending.append(document.id)

    def _add_to_batch(self, document: ScannedDocument) -> None:
        if document.stored:
            row = self._batch.changed_sitemaps.setdefault(document.id, {})
            row["last_job_id"] = self._claim.job_id
        else:
            row = self._batch.new_sitemaps.setdefault(document.id, self._new_sitemap_row(document))
        row |= document.changes
        document.changes = {}

    def _new_sitemap_row(self, document: ScannedDocument) -> dict[str, Any]:
        return {
            "domain_id": self._scan.domain_id,
            "url": document.url,
            "url_hash": url_hash(document.url),
            "requested_url": document.requested_url,
            "discovery_method": document.method.value,
            "first_job_id": self._claim.job_id,
            "last_job_id": self._claim.job_id,
            "created_by": self._claim.created_by,
        }

    def _add_link_to_batch(self, parent_url: str | None, child: ScannedDocument) -> None:
        parent_id = self._documents.id_of(parent_url) if parent_url else None
        if parent_id is None or parent_id == child.id:
            return
        self._batch.links.add((parent_id, child.id))
        parent = self._documents.opened(parent_id)
        if parent is not None:
            parent.add_child(child.id)

    def _record_partial_reason(self, code: str) -> None:
        if code not in self.reasons:
            self.reasons.append(code)

    async def _flush_batch_when_due(self) -> None:
        batch = self._batch
        grown = batch.size - batch.counted_size
        batch.counted_size += grown
        self._held_bytes += grown
        self._budget.reserve(grown)
        full = (
            batch.url_row_count >= FLUSH_ROWS
            or batch.document_rows >= 500
            or batch.size >= 4 * 1024 * 1024
            or (self._budget.spent and batch.url_row_count > 0)
            or (self._budget.spent and batch.document_rows >= FLUSH_DOCUMENTS_WHEN_SPENT)
        )
        if full or time.monotonic() - self._batch_started > FLUSH_SECONDS:
            await self._start_writing()

    async def _start_writing(self) -> None:
        await self._writer.wait_written()
        batch = self.next_batch()
        if not batch.is_empty():
            self._writer.start(batch, self._progress_snapshot())

    def next_batch(self) -> WriteBatch:
        """Return the rows collected so far and start a new batch."""
        batch, self._batch = self._batch, WriteBatch()
        self._documents.mark_stored([*batch.new_sitemaps, *batch.changed_sitemaps])
        self._batch_started = time.monotonic()
        return batch

    def _on_committed(self, batch: WriteBatch) -> None:
        if batch.closed:
            self._activity.document_committed.set()
        self._held_bytes -= batch.counted_size
        self._budget.free(batch.counted_size)

    def _progress_snapshot(self) -> ProgressSnapshot:
        """Documents finished out of the documents known so far; an estimate."""
        known, ended = len(self._listed), len(self._ended)
        result = {
            "domain": self._scan.domain,
            "sitemap_count": ended,
            "known_sitemap_count": known,
            "url_count": self.url_count,
        }
        return ProgressSnapshot(START_PROGRESS + READING_PROGRESS * ended / max(1, known), result)

    async def finish(self) -> FinishedScan:
        """Wait for the writer. Return the last batch, to be written with the final status."""
        await self._writer.wait_written()
        # Listed documents stay unrequested after a limit, or a redirect to another document.
        unrequested = self._scan.resumed or len(self._listed) > len(self._ended)
        robots = tuple(self._robots.values())
        batch = self.next_batch()
        return FinishedScan(
            batch,
            self.reasons,
            unrequested,
            self._origin,
            self._ip,
            robots,
            self._skipped_sitemaps,
        )

    async def flush(self) -> None:
        """Write all collected rows, for a scan that is not published now."""
        await self._start_writing()
        await self._writer.wait_written()

    async def abandon(self) -> None:
        """Stop without writing anything more."""
        await self._writer.stop()
        self._budget.free(self._held_bytes)
        self._held_bytes = 0
        await self._documents.abandon()


def log_robots(event: RobotsRead) -> None:
    log.info(
        "robots_read",
        url=event.url,
        status=event.http_status,
        sitemaps=len(event.sitemap_urls),
        error_code=event.error_code,
    )


def log_and_count(event: DocumentClosed) -> None:
    """Log a document that the scan has read, and count it."""
    meters.documents[event.outcome.value] += 1
    if event.unchanged_by is not None:
        meters.unchanged_documents[event.unchanged_by.value] += 1
    meters.fetched_bytes += event.wire_bytes
    meters.fetch_duration.observe(event.seconds)
    log.info(
        "document_read",
        url=event.url,
        outcome=event.outcome.value,
        urls=event.entry_count,
        error_code=event.error_code,
        seconds=round(event.seconds, 3),
    )
