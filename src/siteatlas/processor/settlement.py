"""What comes between the last read of a scan and its publication, in short fenced transactions.

Changes of unpublished scans are taken over, changes are classified for the whole site, vanished
documents are found, and what is proved to be removed is removed. Each step can be repeated, so a
later attempt continues where this one stopped. `publication` owns the transaction that follows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Protocol
from uuid import UUID

from siteatlas.errors import SiteatlasError
from siteatlas.logs import get_logger
from siteatlas.processor.documents import OpenedScan
from siteatlas.processor.fenced_steps import FencedSteps
from siteatlas.processor.removals import (
    RemovalDecision,
    RemovalFacts,
    RemovalRules,
    VanishedDocument,
    decide_removals,
    may_remove_at_once,
)
from siteatlas.processor.stored_decision import dump_decision, load_decision_from
from siteatlas.processor.vanishing import Probe, VanishedDocuments, VanishingSearch
from siteatlas.queue.held_removals import is_release_requested
from siteatlas.storage.hashes import url_hash
from siteatlas.storage.session import AsyncSession
from siteatlas.storage.statements.change_classification import (
    FIRST,
    ChangeCounts,
    ChangePosition,
    Classification,
    classify_arrivals,
    classify_departures,
    count_changes,
)
from siteatlas.storage.statements.change_takeover import find_leftover_scans, take_over_changes
from siteatlas.storage.statements.distinct_urls import count_distinct_urls
from siteatlas.storage.statements.missing_urls import (
    MissingUrls,
    count_leaving_urls,
    database_time,
    load_decision,
    load_missing,
    load_oldest_reads,
    store_decision,
)
from siteatlas.storage.statements.other_entries import load_site_size
from siteatlas.storage.statements.removed_urls import GROUPS_PER_BATCH, Removal, remove_urls
from siteatlas.storage.statements.scan_summary import ScanSummary
from siteatlas.storage.statements.vanished_sitemaps import (
    UnreadDocument,
    is_other_document,
    load_incomplete,
    load_parents,
    load_unread_documents,
    mark_vanished,
)

log = get_logger("processor")


class Classify(Protocol):
    """Classifies the next batch of changes; returns its end, None if it was the last one."""

    def __call__(
        self, session: AsyncSession, of: Classification, after: ChangePosition
    ) -> Awaitable[ChangePosition | None]: ...


@dataclass(frozen=True, slots=True)
class ScanEnd:
    """What the end of a scan depends on, besides its rows.

    `is_full`: the whole site was to be read, and no limit was met. `sees_all_names`: robots.txt was
    read as well, so that a document that nothing names is named nowhere. `failure` is the error of
    a scan that found nothing; it is published only if all known documents are not found.
    """

    scan: OpenedScan
    rules: RemovalRules
    probe: Probe
    is_full: bool
    sees_all_names: bool
    failure: SiteatlasError | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """The result: what was decided, and the numbers that publication needs.

    `incomplete` are the documents that the scan requested and did not read in full.
    """

    decision: RemovalDecision = field(default_factory=RemovalDecision)
    changes: ChangeCounts = field(default_factory=ChangeCounts)
    incomplete: frozenset[UUID] = frozenset()
    distinct_urls: int | None = None


class Settlement:
    """Settles one scan; `run` is called once."""

    def __init__(self, steps: FencedSteps, end: ScanEnd, summary: ScanSummary) -> None:
        self._steps = steps
        self._end = end
        self._summary = summary
        self._scan_id = end.scan.id
        self._domain_id = end.scan.domain_id

    async def run(self) -> Settled:
        """Run all steps that are needed."""
        await self._take_over_changes()
        if self._summary.has_changes or self._summary.has_leftovers:
            await self._classify(classify_arrivals)
        vanished = await self._find_vanished()
        decision, incomplete = await self._decide(vanished)
        await self._remove(decision.removals)
        changes = await self._count_changes()
        if changes.have_departures:
            await self._classify(classify_departures)
            changes = await self._count_changes()
        log.info("scan_settled", changes=changes.by_kind, held=decision.held.count)
        return Settled(decision, changes, incomplete)

    async def _take_over_changes(self) -> None:
        """Take over what scans left that ended without being published."""
        if not self._summary.has_leftovers:
            return
        for old_scan in await self._steps.read(
            partial(find_leftover_scans, domain_id=self._domain_id, new_scan=self._scan_id)
        ):
            take = partial(take_over_changes, old_scan=old_scan, new_scan=self._scan_id)
            while await self._steps.run(take):
                pass

    async def _classify(self, classify: Classify) -> None:
        """Classify the changes of the scan, batch by batch."""
        what = await self._steps.read(self._plan_classification)
        position: ChangePosition | None = FIRST
        while position is not None:
            position = await self._steps.run(partial(classify, of=what, after=position))

    async def _plan_classification(self, session: AsyncSession) -> Classification:
        """How to classify, by the number of changes and the size of the site."""
        changes = await count_changes(session, self._scan_id)
        size = await load_site_size(session, self._domain_id)
        lookup = size.lookup(sum(changes.by_kind.values()))
        return Classification(self._scan_id, self._domain_id, lookup)

    async def _count_changes(self) -> ChangeCounts:
        return await self._steps.read(partial(count_changes, scan_id=self._scan_id))

    async def _find_vanished(self) -> list[VanishedDocument]:
        """Find the vanished documents and mark them."""
        documents = await self._load_unread()
        if not documents:
            return []
        links = await self._steps.read(
            partial(load_parents, scan_id=self._scan_id, children=[doc.id for doc in documents])
        )
        search = VanishingSearch(
            documents, links, self._end.sees_all_names, self._end.probe, self._is_other_document
        )
        found = await search.run()
        self._require_all_not_found(documents, found)
        new = [doc.id for doc in documents if doc.id in found.ids and doc.vanished_at is None]
        if new:
            mark = partial(mark_vanished, scan_id=self._scan_id, sitemap_ids=new)
            await self._steps.run(mark)
        now = await self._steps.read(database_time)
        return [_vanished(doc, now, found) for doc in documents if _has_vanished(doc, found)]

    async def _load_unread(self) -> list[UnreadDocument]:
        """The documents that the scan did not read, if it is one of the whole site."""
        documents: list[UnreadDocument] = []
        if self._summary.unread and self._steps.claim.document is None:
            documents = await self._steps.read(
                partial(load_unread_documents, domain_id=self._domain_id, scan_id=self._scan_id)
            )
        if not documents and self._end.failure is not None:
            raise self._end.failure
        return documents

    def _require_all_not_found(
        self, documents: Sequence[UnreadDocument], found: VanishedDocuments
    ) -> None:
        """Raise the failure of the scan unless all documents ever read are not found any more."""
        known = {doc.id for doc in documents if doc.last_complete_at is not None}
        if self._end.failure is not None and not (known and known <= found.not_found):
            raise self._end.failure

    async def _is_other_document(self, url: str, document_id: UUID) -> bool:
        look_up = partial(
            is_other_document,
            domain_id=self._domain_id,
            url_hash=url_hash(url),
            document_id=document_id,
        )
        return await self._steps.read(look_up)

    async def _decide(
        self, vanished: list[VanishedDocument]
    ) -> tuple[RemovalDecision, frozenset[UUID]]:
        """Decide about removals and store that, or continue with an earlier decision."""
        incomplete = frozenset(
            await self._steps.read(partial(load_incomplete, scan_id=self._scan_id))
            if self._summary.incomplete
            else ()
        )
        stored = await self._steps.read(partial(load_decision, scan_id=self._scan_id))
        if stored is not None:
            return load_decision_from(stored), incomplete
        missing = await self._steps.read(partial(load_missing, domain_id=self._domain_id))
        if not missing and not vanished:
            return RemovalDecision(), incomplete
        facts = await self._facts(missing, vanished, incomplete)
        released = await self._steps.read(partial(is_release_requested, claim=self._steps.claim))
        decision = decide_removals(facts, replace(self._end.rules, released=released))
        if decision.removals:
            dumped = dump_decision(decision)
            await self._steps.run(partial(store_decision, scan_id=self._scan_id, decision=dumped))
        return decision, incomplete

    async def _facts(
        self,
        missing: list[MissingUrls],
        vanished: list[VanishedDocument],
        incomplete: frozenset[UUID],
    ) -> RemovalFacts:
        """Load what the decision depends on."""
        oldest = await self._steps.read(
            partial(load_oldest_reads, domain_id=self._domain_id, but=[doc.id for doc in vanished])
        )
        url_count = await self._url_count()
        return RemovalFacts(
            now=await self._steps.read(database_time),
            is_full_scan=self._end.is_full,
            incomplete=incomplete,
            missing=missing,
            vanished=vanished,
            oldest_reads=oldest,
            leaving=await self._count_leaving(missing, url_count),
            url_count=url_count,
        )

    async def _url_count(self) -> int:
        """How many different URLs the site had before this scan."""
        known = self._summary.last_distinct
        if known is not None and self._summary.has_baseline and not self._summary.silent:
            return known
        return await self._steps.read(
            partial(
                count_distinct_urls,
                domain_id=self._domain_id,
                url_count=self._summary.stored_urls,
            )
        )

    async def _count_leaving(self, missing: list[MissingUrls], url_count: int) -> int:
        """How many URLs the site would lose, counted only as far as it matters."""
        at_most = sum(urls.count for urls in missing)
        if may_remove_at_once(at_most, url_count):
            return at_most
        count = partial(
            count_leaving_urls,
            domain_id=self._domain_id,
            sitemap_ids=list({urls.sitemap_id for urls in missing}),
            up_to=max(url_count // 2, 20) + 1,
        )
        return await self._steps.read(count)

    async def _remove(self, removals: Sequence[Removal]) -> None:
        """Write the removals, batch by batch."""
        missing = [removal for removal in removals if removal.missing_scan_id is not None]
        whole = [removal for removal in removals if removal.missing_scan_id is None]
        for alike in (missing, whole):
            for first in range(0, len(alike), GROUPS_PER_BATCH):
                remove = partial(
                    remove_urls,
                    scan_id=self._scan_id,
                    removals=alike[first : first + GROUPS_PER_BATCH],
                    silent=not self._summary.has_baseline,
                )
                while await self._steps.run(remove):
                    pass


def _has_vanished(document: UnreadDocument, found: VanishedDocuments) -> bool:
    return document.id in found.ids or document.vanished_at is not None


def _vanished(
    document: UnreadDocument, now: datetime, found: VanishedDocuments
) -> VanishedDocument:
    return VanishedDocument(
        id=document.id,
        url=document.url,
        url_count=document.url_count,
        last_complete_at=document.last_complete_at,
        vanished_at=document.vanished_at or now,
        scan_started_at=document.vanished_scan_started_at,
        again=document.vanished_at is not None and document.id in found.ids,
    )
