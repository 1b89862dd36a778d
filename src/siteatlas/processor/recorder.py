"""Turns the events of a scan into rows and gathers them in portions.

A portion is written while the next one is gathered, and a slow database slows the reading; how it
is written is the business of `portion_writer`, what becomes of the job that of `publication`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from functools import singledispatchmethod
from typing import Any
from uuid import UUID

from siteatlas.aio.background import beside
from siteatlas.aio.fairness import turns
from siteatlas.logs import get_logger
from siteatlas.meters import meters
from siteatlas.processor.batch_writer import PortionWriter, Standing
from siteatlas.processor.comparison import Comparison
from siteatlas.processor.documents import EXTRA_FLAGS, Document, DocumentBook
from siteatlas.processor.entry_memory import ListingMemory, Stored, StoredArrays
from siteatlas.processor.job_activity import Pulse
from siteatlas.processor.memory_budget import EntryBudget
from siteatlas.processor.opened_scan import OpenedScan
from siteatlas.queue.claims import Claim
from siteatlas.scanner.events import (
    DONE_BEFORE,
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
    SiteResolved,
)
from siteatlas.storage.hashes import url_hash
from siteatlas.storage.session import get_job_session
from siteatlas.storage.statements.known_sitemaps import DONE, look_up_sitemaps
from siteatlas.storage.statements.urls import load_fingerprints, load_some_fingerprints
from siteatlas.storage.statements.write_batch import Portion
from siteatlas.storage.texts import storable

log = get_logger("processor")

FLUSH_ROWS = 5_000
FLUSH_DOCUMENTS = 1_000
CHILDREN_PER_PIECE = 50
FLUSH_BYTES = 4 * 1024 * 1024
FLUSH_SECONDS = 2.0
IDLE_SECONDS = 2.0
START_PROGRESS = 0.05
READING_PROGRESS = 0.9


class Recorder:
    """Writes one scan for one claim. Use: `record` each event, then `finish` or `abandon`."""

    def __init__(
        self, claim: Claim, scan: OpenedScan, *, lease_seconds: float, budget: EntryBudget
    ) -> None:
        self._claim = claim
        self._scan = scan
        self._budget = budget
        self._book = DocumentBook(scan.known.by_id.values())
        self._comparison = Comparison()
        self._portion = Portion()
        self._open: dict[UUID, Document] = {}
        self._held = 0
        self._portion_started = time.monotonic()
        self._recording = asyncio.Lock()
        self._writer = PortionWriter(claim, scan, lease_seconds=lease_seconds, settled=self.settle)
        done = [sitemap for sitemap in scan.known.by_id.values() if sitemap.state in DONE]
        # The numbers of ids. Not a set: that takes nearly twice the memory.
        self._listed = dict.fromkeys(sitemap.id.int for sitemap in done)
        self._ended = set(self._listed)
        self.reasons: list[str] = []
        self.url_count = sum(sitemap.read_count for sitemap in done)

    async def take_in(self, event: ScanEvent) -> None:
        """Record one event, while `write_when_idle` may run beside."""
        async with self._recording:
            await self.record(event)

    async def write_when_idle(self) -> None:
        """Write what is held when no event comes for a while, until cancelled.

        A job may wait long for its site; what it holds then would be missing from the budget of
        all others. A write that fails is raised to whoever records the next event.
        """
        while True:
            await asyncio.sleep(IDLE_SECONDS)
            async with self._recording:
                await self._flush_when_due()

    @singledispatchmethod
    async def record(self, event: ScanEvent) -> None:
        """Take in one event of the scan."""
        raise TypeError(event)

    @record.register
    async def _(self, event: RobotsRead) -> None:
        log.info(
            "robots_read",
            url=event.url,
            status=event.http_status,
            sitemaps=len(event.sitemap_urls),
            error_code=event.error_code,
        )

    @record.register
    async def _(self, event: SiteResolved) -> None:
        self._portion.origin = event.origin

    @record.register
    async def _(self, event: CandidateJudged) -> None:
        if event.reason == DONE_BEFORE:
            return  # an earlier attempt at this scan wrote down more
        url = storable(event.url)
        key = url_hash(url)
        self._portion.candidates[key] = {
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

    @record.register
    async def _(self, event: ProblemSeen) -> None:
        log.warning("scan_problem", code=event.code, url=event.url, detail=event.detail)
        self._add_reason(event.code)

    @record.register
    async def _(self, event: DocumentRequested) -> None:
        """Only a person who watches the scan needs it."""

    @record.register
    async def _(self, event: DocumentOpened) -> None:
        await self._look_up([event.url, event.requested_url])
        document = self._arrive(event.url, event.requested_url, event.method)
        document.found_by(event.method)
        document.changes |= {"type": event.type.value, "http_status": event.http_status}
        if event.listed_lastmod is not None:
            document.changes["lastmod"] = event.listed_lastmod
        document.forget()
        document.memory = ListingMemory(self._budget.documents, await self._stored(document))
        self._open[document.id] = document
        self._expect(document)
        self._portion.opened[document.id] = event.http_status
        self._link(event.parent_url, document)

    @record.register
    async def _(self, event: ChildrenFound) -> None:
        await self._look_up([child.url for child in event.children])
        for first in range(0, len(event.children), CHILDREN_PER_PIECE):
            async with turns().piece():
                for child in event.children[first : first + CHILDREN_PER_PIECE]:
                    self._list_child(event.url, child)
            await self._flush_when_due()

    def _list_child(self, parent_url: str, child: ChildLink) -> None:
        document = self._book.listed(child.url, DiscoveryMethod.SITEMAP_INDEX)
        if child.lastmod is not None:
            document.changes["lastmod"] = child.lastmod
        self._expect(document)
        self._link(parent_url, document)

    @record.register
    async def _(self, event: EntriesRead) -> None:
        document = self._book.find(event.url)
        assert document is not None
        async with turns().piece():
            before = self._portion.size
            self._comparison.sort(
                document, event.columns, self._portion.new_urls, self._portion.changed_urls
            )
        self._flag_extras(document, event)
        self._hold(self._portion.size - before)
        self.url_count += len(event.columns)
        meters.urls += len(event.columns)
        await self._flush_when_due()

    @record.register
    async def _(self, event: DocumentClosed) -> None:
        await self._look_up([event.url, event.requested_url])
        document = self._arrive(event.url, event.requested_url, event.method)
        document.found_by(event.method)
        document.close(event)
        self._open.pop(document.id, None)
        self._expect(document)
        self._link(event.parent_url, document)
        self._touch(document)
        self._portion.opened.pop(document.id, None)
        self._portion.closed[document.id] = document.scan_row()
        self._portion.problems += document.found_problems()
        if event.outcome is DocumentOutcome.COMPLETE and not document.fresh:
            self._portion.read_completely.add(document.id)
        self._ended.add(document.id.int)
        meters.documents[event.outcome.value] += 1
        meters.fetched_bytes += event.wire_bytes
        meters.fetch_seconds += event.seconds
        if event.outcome in (DocumentOutcome.CUT, DocumentOutcome.UNREAD):
            self._add_reason(event.error_code or event.outcome.value)
        log.info(
            "document_read",
            url=event.url,
            outcome=event.outcome.value,
            urls=event.entry_count,
            error_code=event.error_code,
            seconds=round(event.seconds, 3),
        )
        await self._flush_when_due()

    async def _stored(self, document: Document) -> Stored:
        """What is stored of a document: at once while there is memory, else in parts."""
        if document.fresh:
            return {}
        if not self._budget.documents.spent:
            async with get_job_session() as session, session.begin():
                return await load_fingerprints(session, document.id)
        return await self._stored_in_parts(document)

    async def _stored_in_parts(self, document: Document) -> StoredArrays:
        stored = StoredArrays()
        after: int | None = None
        while True:
            async with get_job_session() as session, session.begin():
                hashes, fingerprints = await load_some_fingerprints(session, document.id, after)
            if not hashes:
                return stored
            stored.extend(hashes, fingerprints)
            after = hashes[-1]

    async def _look_up(self, urls: Sequence[str]) -> None:
        """Learn which of these documents are stored, where a site has too many to know them all."""
        if self._scan.known.are_all:
            return
        hashes = [url_hash(url) for url in urls if not self._book.knows(url)]
        if not hashes:
            return
        async with get_job_session() as session, session.begin():
            found = await look_up_sitemaps(session, self._scan.domain_id, self._scan.id, hashes)
        self._book.learn(found)

    def _arrive(self, url: str, requested_url: str, method: DiscoveryMethod) -> Document:
        """The document that answered; a listed one that turned out to be another is forgotten."""
        listed = self._book.find(requested_url)
        document = self._book.arrived(url, requested_url, method)
        if listed is not None and listed is not document and not listed.stored:
            self._portion.new_sitemaps.pop(listed.id, None)
            self._portion.links = {link for link in self._portion.links if listed.id not in link}
            self._portion.pending = [i for i in self._portion.pending if i != listed.id]
            self._listed.pop(listed.id.int, None)
        return document

    def _expect(self, document: Document) -> None:
        """Put a document on the frontier of this scan, once."""
        self._touch(document)
        if document.id.int not in self._listed:
            self._listed[document.id.int] = None
            self._portion.pending.append(document.id)

    def _touch(self, document: Document) -> None:
        """Move what is to be written of a document into the portion."""
        if document.stored:
            row = self._portion.changed_sitemaps.setdefault(document.id, {})
            row["last_job_id"] = self._claim.job_id
        else:
            row = self._portion.new_sitemaps.setdefault(document.id, self._first_row(document))
        row |= document.changes
        document.changes = {}

    def _first_row(self, document: Document) -> dict[str, Any]:
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

    def _link(self, parent_url: str | None, child: Document) -> None:
        parent = self._book.find(parent_url) if parent_url else None
        if parent is not None and parent.id != child.id:
            self._portion.links.add((parent.id, child.id))

    def _flag_extras(self, document: Document, event: EntriesRead) -> None:
        flags = {
            EXTRA_FLAGS[key]: True
            for extra in event.columns.extras
            if extra
            for key in extra
            if key in EXTRA_FLAGS
        }
        if flags:
            document.changes |= flags

    def _add_reason(self, code: str) -> None:
        if code not in self.reasons:
            self.reasons.append(code)

    def _hold(self, size: int) -> None:
        self._held += size
        self._budget.take(size)

    async def _flush_when_due(self) -> None:
        portion = self._portion
        full = (
            portion.url_rows >= FLUSH_ROWS
            or portion.document_rows >= FLUSH_DOCUMENTS
            or portion.size >= FLUSH_BYTES
            or (portion.url_rows > 0 and self._budget.spent)
        )
        if full or time.monotonic() - self._portion_started > FLUSH_SECONDS:
            await self._start_writing()

    async def _start_writing(self) -> None:
        """Hand the portion to the writer, after the one before has been written."""
        await self._writer.written()
        portion = self.take_portion()
        if not portion.is_empty():
            self._writer.start(portion, self._standing())

    def take_portion(self) -> Portion:
        """The rows gathered so far; the next ones begin a new portion."""
        portion, self._portion = self._portion, Portion()
        self._book.mark_stored(portion.new_sitemaps)
        self._portion_started = time.monotonic()
        return portion

    def settle(self, portion: Portion) -> None:
        """A portion was committed: its rows are no longer held in memory."""
        self._held -= portion.size
        self._budget.give_back(portion.size)

    def _standing(self) -> Standing:
        """Documents ended of documents known so far; it can only be an estimate."""
        known, ended = len(self._listed), len(self._ended)
        result = {
            "domain": self._scan.domain,
            "sitemap_count": ended,
            "known_sitemap_count": known,
            "url_count": self.url_count,
        }
        return Standing(START_PROGRESS + READING_PROGRESS * ended / max(1, known), result)

    async def finish(self) -> Portion:
        """Wait for the writer; the rows that remain belong into the final transaction."""
        await self._writer.written()
        return self.take_portion()

    @property
    def has_unasked(self) -> bool:
        """Whether documents may have been listed but not asked for, now or in an earlier attempt.

        A limit does that, or a redirect to another document.
        """
        return self._scan.resumed or not self._listed.keys() <= self._ended

    async def save_what_remains(self) -> None:
        """Write all that was gathered, for a scan that will not be published now."""
        await self._start_writing()
        await self._writer.written()

    async def abandon(self) -> None:
        """Stop without writing anything more."""
        await self._writer.stop()
        self._budget.give_back(self._held)
        self._held = 0
        for document in self._open.values():
            document.forget()


async def store_domain_data(
    events: AsyncIterator[ScanEvent], recorder: Recorder, pulse: Pulse
) -> None:
    """Record every event of a scan."""
    async with beside(recorder.write_when_idle()):
        async for event in events:
            pulse.beat()
            await recorder.take_in(event)
