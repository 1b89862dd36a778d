"""What comes between the last read of a scan and its publication, in short fenced transactions.

Changes of unpublished scans are taken over, changes are classified for the whole site, vanished
documents are found, and what is proved to be removed is removed. Each step can be repeated, so a
later attempt continues where this one stopped. `publication` owns the transaction that follows.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Protocol, Self
from uuid import UUID

from siteatlas.catalog.classification import (
    FIRST,
    ChangeCounts,
    ChangePosition,
    Classification,
    classify_arrivals,
    classify_departures,
    count_changes,
    load_site_size,
)
from siteatlas.catalog.removals import (
    GROUPS_PER_BATCH,
    CompleteRead,
    MissingUrls,
    ParentLink,
    Removal,
    UnreadDocument,
    count_leaving_urls,
    is_other_document,
    load_decision,
    load_incomplete,
    load_missing,
    load_oldest_reads,
    load_parents,
    load_unread_documents,
    mark_vanished,
    remove_urls,
    store_decision,
)
from siteatlas.catalog.scans import NOT_ASKED, ScanSummary
from siteatlas.catalog.url_changes import find_leftover_scans, take_over_changes
from siteatlas.catalog.urls import count_distinct_urls, url_hash
from siteatlas.errors import HttpNotFound, NoSitemap, SiteatlasError
from siteatlas.logs import get_logger
from siteatlas.processor.documents import OpenedScan
from siteatlas.processor.steps import FencedSteps, FinishedScan
from siteatlas.queue.operator_actions import is_release_requested
from siteatlas.scanner.events import DiscoveryMethod
from siteatlas.scanner.problem_codes import ProblemCode, ProblemGroup
from siteatlas.storage.models import RemovalEvidence, SitemapScanState
from siteatlas.storage.session import AsyncSession, database_time

log = get_logger("processor")

MAX_PROBES = 100
NOT_FOUND = (404, 410)
LONG_AGO = datetime.min.replace(tzinfo=UTC)

# An address with that after redirects, or with the error of the document.
Answer = tuple[str, str | SiteatlasError]
Probe = Callable[[Iterable[str]], AsyncIterator[Answer]]
IsOtherDocument = Callable[[str, UUID], Awaitable[bool]]
RequestDocuments = Callable[[Iterable[str]], AsyncGenerator[Answer, None]]


class HoldReason(StrEnum):
    """Why removals of URLs are held.

    `unread`: the document could list them now. `vanished`: their document is no longer found.
    `empty`: their document lists nothing any more. `unconfirmed`: the scan was not complete, or
    too many URLs are missing, so that a later read has to miss them too.
    """

    UNREAD = "unread"
    VANISHED = "vanished"
    EMPTY = "empty"
    UNCONFIRMED = "unconfirmed"


@dataclass(frozen=True, slots=True)
class RemovalRules:
    """How long a removal takes without a complete scan. `released`: a user ended the hold."""

    confirm_after: timedelta
    hold_at_most: timedelta
    released: bool = False


@dataclass(frozen=True, slots=True)
class RemovalFacts:
    """What a decision depends on.

    The scan is complete if it is a full one and all its `incomplete` documents are gone.
    `oldest_reads` are the documents read longest ago, without those that vanished and those that
    are gone. `leaving` is the number of URLs that would be removed, of `url_count` in the site.
    """

    now: datetime
    is_full_scan: bool
    incomplete: Collection[UUID] = frozenset()
    missing: Sequence[MissingUrls] = ()
    vanished: Sequence[UnreadDocument] = ()
    oldest_reads: Sequence[CompleteRead] = ()
    leaving: int = 0
    url_count: int = 0


@dataclass(frozen=True, slots=True)
class HeldRemovals:
    """How many listings are held, and the documents in the way, each with a reason."""

    count: int = 0
    documents: dict[str, HoldReason] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """The data of a `removals_held` event."""
        named = list(self.documents.items())[:20]
        documents = [{"sitemap": url, "reason": reason.value} for url, reason in named]
        more = len(self.documents) - len(named)
        return {"count": self.count, "documents": documents, "more_documents": more}


@dataclass(frozen=True, slots=True)
class RemovalDecision:
    """What a scan removes, and what it holds. A removal of a whole document makes it gone."""

    removals: tuple[Removal, ...] = ()
    held: HeldRemovals = field(default_factory=HeldRemovals)

    @property
    def gone(self) -> dict[UUID, RemovalEvidence]:
        """The documents that are gone, with the evidence."""
        whole = (removal for removal in self.removals if removal.missing_scan_id is None)
        return {removal.sitemap_id: removal.evidence for removal in whole}


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


def end_of_scan(
    steps: FencedSteps,
    scan: OpenedScan,
    finished: FinishedScan,
    rules: RemovalRules,
    request_documents: RequestDocuments,
    failure: NoSitemap | None,
) -> ScanEnd:
    """What the end of a scan depends on besides its rows."""
    limits = {code.value for code in ProblemCode if code.group is ProblemGroup.SCAN}
    met_no_limit = limits.isdisjoint(finished.reasons)
    covers_site = steps.claim.document is None and met_no_limit
    robots_read = any(robots.error_code is None for robots in finished.robots)

    async def probe(urls: Iterable[str]) -> AsyncIterator[Answer]:
        async with aclosing(request_documents(urls)) as answers:
            async for answer in answers:
                steps.activity.record_event()
                yield answer

    return ScanEnd(
        scan,
        rules,
        probe,
        is_full=covers_site and failure is None,
        sees_all_names=covers_site and robots_read,
        failure=failure,
    )


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
        if not self._summary.has_leftovers:
            return
        for old_scan in await self._steps.read(
            partial(find_leftover_scans, domain_id=self._domain_id, new_scan=self._scan_id)
        ):
            take = partial(take_over_changes, old_scan=old_scan, new_scan=self._scan_id)
            while await self._steps.run(take):
                pass

    async def _classify(self, classify: Classify) -> None:
        what = await self._steps.read(self._plan_classification)
        position: ChangePosition | None = FIRST
        while position is not None:
            position = await self._steps.run(partial(classify, of=what, after=position))

    async def _plan_classification(self, session: AsyncSession) -> Classification:
        changes = await count_changes(session, self._scan_id)
        size = await load_site_size(session, self._domain_id)
        lookup = size.lookup(sum(changes.by_kind.values()))
        return Classification(self._scan_id, self._domain_id, lookup)

    async def _count_changes(self) -> ChangeCounts:
        return await self._steps.read(partial(count_changes, scan_id=self._scan_id))

    async def _find_vanished(self) -> list[UnreadDocument]:
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
        # An earlier attempt at this scan may have marked documents.
        new_ones = (None, self._scan_id)
        again = {doc.id for doc in documents if doc.vanished_scan_id not in new_ones} & found.ids
        return [
            replace(doc, vanished_again=doc.id in again)
            for doc in documents
            if doc.id in found.ids or doc.vanished_at is not None
        ]

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
        self, documents: Sequence[UnreadDocument], found: VanishingSearch
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
        self, vanished: list[UnreadDocument]
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
        vanished: list[UnreadDocument],
        incomplete: frozenset[UUID],
    ) -> RemovalFacts:
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


@dataclass(slots=True)
class VanishingSearch:
    """One search. `sees_all_names`: the scan read robots.txt and met no limit.

    It finds the `ids` of vanished documents; those `not_found` answered 404 or 410.
    """

    documents: Sequence[UnreadDocument]
    parents: Sequence[ParentLink]
    sees_all_names: bool
    probe: Probe
    is_other_document: IsOtherDocument
    ids: set[UUID] = field(default_factory=set)
    not_found: set[UUID] = field(default_factory=set)

    async def run(self) -> Self:
        """Search. Children follow their index, so this takes several rounds."""
        self.not_found |= {document.id for document in self.documents if _was_not_found(document)}
        self.ids |= self.not_found
        asked: set[UUID] = set()
        while unnamed := self._unnamed(asked):
            self.ids |= {document.id for document in unnamed if _needs_no_answer(document)}
            to_ask = [document for document in unnamed if document.id not in self.ids]
            to_ask = to_ask[: MAX_PROBES - len(asked)]
            if not to_ask and not any(_needs_no_answer(document) for document in unnamed):
                break
            asked |= {document.id for document in to_ask}
            await self._ask(to_ask)
        # Beyond the limit of requests, those asked by an earlier scan.
        self.ids |= {
            document.id for document in self._unnamed(asked) if document.vanished_at is not None
        }
        return self

    def _unnamed(self, asked: set[UUID]) -> list[UnreadDocument]:
        """The documents to ask: nothing names them any more, or they may redirect to others."""
        if not self.sees_all_names:
            return []
        named = {
            link.child_id
            for link in self.parents
            if not (link.is_read or link.is_gone or link.parent_id in self.ids)
        }
        return [
            document
            for document in self.documents
            if document.id not in self.ids | asked
            and _may_have_vanished(document)
            and document.id not in named
        ]

    async def _ask(self, documents: Sequence[UnreadDocument]) -> None:
        by_url = {document.requested_url or document.url: document for document in documents}
        async for url, answer in self.probe(list(by_url)):
            document = by_url[url]
            if isinstance(answer, HttpNotFound):
                self.ids.add(document.id)
                self.not_found.add(document.id)
            elif isinstance(answer, str) and await self._is_left(document, answer):
                self.ids.add(document.id)

    async def _is_left(self, document: UnreadDocument, final_url: str) -> bool:
        """Whether a document that is still there does not belong to the site any more."""
        if final_url != document.url and await self.is_other_document(final_url, document.id):
            return True
        # Places that are read in every scan of a site, so that silence means something.
        naming = (DiscoveryMethod.ROBOTS_TXT, DiscoveryMethod.SITEMAP_INDEX)
        return document.state is None and document.discovery_method in naming


def _was_not_found(document: UnreadDocument) -> bool:
    if document.state is None:
        return document.candidate_status in NOT_FOUND
    return document.state is SitemapScanState.UNREAD and document.http_status in NOT_FOUND


def _needs_no_answer(document: UnreadDocument) -> bool:
    """Whether a document that nothing names has vanished, whatever it would answer."""
    given_up = document.discovery_method == DiscoveryMethod.MANUAL
    return document.state is None and (given_up or document.last_complete_at is None)


def _may_have_vanished(document: UnreadDocument) -> bool:
    """Whether the scan never came to the document; a fault of it proves nothing."""
    return document.state is None or document.error_code == NOT_ASKED


def decide_removals(facts: RemovalFacts, rules: RemovalRules) -> RemovalDecision:
    """Decide about every missing URL and every vanished document of a site."""
    gone = {doc.id: proof for doc in facts.vanished if (proof := _gone(doc, facts, rules))}
    staying = [doc for doc in facts.vanished if doc.id not in gone]
    others = [*facts.oldest_reads, *((doc.url, doc.last_complete_at) for doc in staying)]
    removals = [
        _of_document(doc, gone[doc.id], facts.now) for doc in facts.vanished if doc.id in gone
    ]
    held, documents = sum(doc.url_count for doc in staying), _vanished_urls(staying)
    is_complete = facts.is_full_scan and set(facts.incomplete) <= gone.keys()
    for urls in facts.missing:
        if urls.sitemap_id in gone:
            continue
        at_once = is_complete and may_remove_at_once(facts.leaving, facts.url_count)
        evidence = _proof(urls, others, facts.now, rules, at_once=at_once and not urls.is_empty)
        if evidence is not None:
            removals.append(_of_missing(urls, evidence))
        elif urls.sitemap_id not in {doc.id for doc in staying}:
            held += urls.count
            documents |= _in_the_way(urls, others, facts)
    return RemovalDecision(tuple(removals), HeldRemovals(held, documents))


def may_remove_at_once(leaving: int, url_count: int) -> bool:
    """Whether one complete scan may remove so many of the URLs of a site."""
    # A complete scan may remove so many URLs at once, however small the site.
    return leaving <= 20 or 2 * leaving <= url_count


def _gone(
    document: UnreadDocument, facts: RemovalFacts, rules: RemovalRules
) -> RemovalEvidence | None:
    """The evidence that a vanished document is gone; None if there is not enough."""
    if rules.released:
        return RemovalEvidence.RELEASED
    vanished_at = document.vanished_at or facts.now
    age = facts.now - vanished_at
    since = document.vanished_scan_started_at or vanished_at
    confirmed = document.vanished_again and age >= rules.confirm_after
    if confirmed and not _unread_since(since, facts.oldest_reads):
        return RemovalEvidence.CONFIRMED
    return RemovalEvidence.TIMEOUT if age >= rules.hold_at_most else None


def _proof(
    urls: MissingUrls,
    others: Iterable[CompleteRead],
    now: datetime,
    rules: RemovalRules,
    *,
    at_once: bool,
) -> RemovalEvidence | None:
    """The evidence that missing URLs were removed; None if there is not enough.

    `at_once`: a single scan is enough.
    """
    if rules.released:
        return RemovalEvidence.RELEASED
    missed_at = urls.missed_at or LONG_AGO
    if not _unread_since(urls.scan_started_at or missed_at, others):
        if _is_confirmed(urls, missed_at, rules):
            return RemovalEvidence.CONFIRMED
        if at_once:
            return RemovalEvidence.COMPLETE
    return RemovalEvidence.TIMEOUT if now - missed_at >= rules.hold_at_most else None


def _is_confirmed(urls: MissingUrls, missed_at: datetime, rules: RemovalRules) -> bool:
    again = urls.read_again_at
    return again is not None and again - missed_at >= rules.confirm_after


def _unread_since(moment: datetime, documents: Iterable[CompleteRead]) -> list[str]:
    return [url for url, read_at in documents if (read_at or LONG_AGO) < moment]


def _in_the_way(
    urls: MissingUrls, others: Iterable[CompleteRead], facts: RemovalFacts
) -> dict[str, HoldReason]:
    unread = _unread_since(urls.scan_started_at or urls.missed_at or LONG_AGO, others)
    vanished = {doc.url for doc in facts.vanished}
    if unread:
        return {
            url: HoldReason.VANISHED if url in vanished else HoldReason.UNREAD for url in unread
        }
    return {urls.sitemap: HoldReason.EMPTY if urls.is_empty else HoldReason.UNCONFIRMED}


def _vanished_urls(documents: Iterable[UnreadDocument]) -> dict[str, HoldReason]:
    return {doc.url: HoldReason.VANISHED for doc in documents if doc.url_count}


def _of_document(document: UnreadDocument, evidence: RemovalEvidence, now: datetime) -> Removal:
    not_after = document.vanished_at or now
    return Removal(document.id, None, evidence, document.last_complete_at, not_after=not_after)


def _of_missing(urls: MissingUrls, evidence: RemovalEvidence) -> Removal:
    return Removal(
        urls.sitemap_id, urls.scan_id, evidence, urls.last_seen_at, not_after=urls.missed_at
    )


def dump_decision(decision: RemovalDecision) -> dict[str, Any]:
    """The decision as JSON."""
    return {
        "removals": [
            {
                "sitemap_id": str(removal.sitemap_id),
                "missing_scan_id": removal.missing_scan_id,
                "evidence": removal.evidence.value,
                "not_before": _dump_time(removal.not_before),
                "not_after": _dump_time(removal.not_after),
            }
            for removal in decision.removals
        ],
        "held": decision.held.count,
        "documents": {url: reason.value for url, reason in decision.held.documents.items()},
    }


def load_decision_from(stored: dict[str, Any]) -> RemovalDecision:
    """The decision that was stored."""
    removals = tuple(
        Removal(
            UUID(row["sitemap_id"]),
            row["missing_scan_id"],
            RemovalEvidence(row["evidence"]),
            _load_time(row["not_before"]),
            _load_time(row["not_after"]),
        )
        for row in stored["removals"]
    )
    documents = {url: HoldReason(reason) for url, reason in stored["documents"].items()}
    return RemovalDecision(removals, HeldRemovals(stored["held"], documents))


def _dump_time(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def _load_time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
