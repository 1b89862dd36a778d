"""The events of documents and of the site that are published with a scan.

They are written in the final transaction, before the rows of scan, site and job are locked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from siteatlas.processor.removals import RemovalDecision
from siteatlas.processor.robots_history import robots_event_data, robots_text
from siteatlas.scanner.events import RobotsRead
from siteatlas.storage.models import FeedEventKind, RemovalEvidence
from siteatlas.storage.session import AsyncSession
from siteatlas.storage.statements.feed_events import (
    add_baselines,
    add_document_events,
    add_domain_event,
)
from siteatlas.storage.statements.new_documents import report_new_documents, report_silent_reads
from siteatlas.storage.statements.robots_files import record_robots
from siteatlas.storage.statements.scan_summary import ScanSummary
from siteatlas.storage.statements.vanished_sitemaps import mark_gone, mark_returned


@dataclass(frozen=True, slots=True)
class EventWriter:
    """Writes the events of one scan. Without a baseline there are no events of documents."""

    session: AsyncSession
    scan_id: int
    domain_id: UUID
    summary: ScanSummary

    async def write_document_events(self, decision: RemovalDecision, *, is_baseline: bool) -> None:
        """Documents that came, came back or are gone, and baselines."""
        if is_baseline:
            await add_baselines(self.session, self.scan_id)
        elif self.summary.has_baseline and self.summary.silent:
            ids = await report_silent_reads(self.session, self.scan_id, self.domain_id)
            await self._add(FeedEventKind.BASELINE, ids)
        # Afterwards, because a document that is reported now has no silent read to report.
        appeared = await self._appeared_documents()
        left = await mark_gone(self.session, list(decision.gone))
        if self.summary.has_baseline:
            await self._add(FeedEventKind.SITEMAP_ADDED, appeared)
            await self._add_gone(decision.gone, left)

    async def _appeared_documents(self) -> list[UUID]:
        """The documents that were gone and are back, and those that were never reported."""
        appeared: list[UUID] = []
        if self.summary.returned:
            appeared += await mark_returned(self.session, self.domain_id, self.scan_id)
        if self.summary.new:
            new = await report_new_documents(self.session, self.scan_id)
            appeared += [document for document in new if document not in appeared]
        return appeared

    async def _add_gone(self, gone: Mapping[UUID, RemovalEvidence], left: list[UUID]) -> None:
        """Write `sitemap_gone` with the evidence for each document."""
        for evidence in set(gone.values()):
            ids = [document for document in left if gone[document] is evidence]
            await self._add(FeedEventKind.SITEMAP_GONE, ids, evidence=evidence.value)

    async def write_domain_events(
        self, decision: RemovalDecision, origin: str | None, robots: tuple[RobotsRead, ...]
    ) -> None:
        """Held removals, another origin, and another robots.txt."""
        new_hold = self.summary.removals_held_since is None and decision.held.count > 0
        if new_hold and self.summary.has_baseline:
            await self._add_of_domain(FeedEventKind.REMOVALS_HELD, decision.held.data())
        before = self.summary.origin
        if origin is not None and before is not None and origin != before:
            addresses = {"before": before, "after": origin}
            await self._add_of_domain(FeedEventKind.ORIGIN_CHANGED, addresses)
        for text in filter(None, map(robots_text, robots)):
            change = await record_robots(self.session, self.domain_id, text)
            if change is not None:
                data = robots_event_data(change, text)
                await self._add_of_domain(FeedEventKind.ROBOTS_CHANGED, data)

    async def _add(self, kind: FeedEventKind, ids: list[UUID], **data: str) -> None:
        await add_document_events(self.session, self.scan_id, kind, ids, data)

    async def _add_of_domain(self, kind: FeedEventKind, data: Mapping[str, object]) -> None:
        await add_domain_event(self.session, self.scan_id, self.domain_id, kind, data)
