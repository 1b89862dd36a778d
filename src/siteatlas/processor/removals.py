"""Decides which missing URLs of a site count as removed, and which are held until there is proof.

Only the decision, from facts: `storage.statements` loads those and writes removals, `settlement`
puts both together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from siteatlas.storage.models import RemovalEvidence
from siteatlas.storage.statements.missing_urls import MissingUrls, ReadDocument
from siteatlas.storage.statements.removed_urls import Removal

# A complete scan may remove so many URLs at once, however small the site.
FEW_URLS = 20
MAX_NAMED_DOCUMENTS = 20
LONG_AGO = datetime.min.replace(tzinfo=UTC)


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
class VanishedDocument:
    """A document that a scan found vanished; `again`: this scan found that too."""

    id: UUID
    url: str
    url_count: int
    last_complete_at: datetime | None
    vanished_at: datetime
    scan_started_at: datetime | None
    again: bool


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
    vanished: Sequence[VanishedDocument] = ()
    oldest_reads: Sequence[ReadDocument] = ()
    leaving: int = 0
    url_count: int = 0


@dataclass(frozen=True, slots=True)
class HeldRemovals:
    """How many listings are held, and the documents in the way, each with a reason."""

    count: int = 0
    documents: dict[str, HoldReason] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """The data of a `removals_held` event."""
        named = list(self.documents.items())[:MAX_NAMED_DOCUMENTS]
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


def decide_removals(facts: RemovalFacts, rules: RemovalRules) -> RemovalDecision:
    """Decide about every missing URL and every vanished document of a site."""
    gone = {doc.id: proof for doc in facts.vanished if (proof := _gone(doc, facts, rules))}
    staying = [doc for doc in facts.vanished if doc.id not in gone]
    others = [*facts.oldest_reads, *(_as_read(doc) for doc in staying)]
    removals = [_of_document(doc, gone[doc.id]) for doc in facts.vanished if doc.id in gone]
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
    return leaving <= FEW_URLS or 2 * leaving <= url_count


def _gone(
    document: VanishedDocument, facts: RemovalFacts, rules: RemovalRules
) -> RemovalEvidence | None:
    """The evidence that a vanished document is gone; None if there is not enough."""
    if rules.released:
        return RemovalEvidence.RELEASED
    age = facts.now - document.vanished_at
    since = document.scan_started_at or document.vanished_at
    confirmed = document.again and age >= rules.confirm_after
    if confirmed and not _unread_since(since, facts.oldest_reads):
        return RemovalEvidence.CONFIRMED
    return RemovalEvidence.TIMEOUT if age >= rules.hold_at_most else None


def _proof(
    urls: MissingUrls,
    others: Iterable[ReadDocument],
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
    """Whether a later read of the document missed the URLs again."""
    last = urls.last_complete_at
    return last is not None and last - missed_at >= rules.confirm_after


def _unread_since(moment: datetime, documents: Iterable[ReadDocument]) -> list[ReadDocument]:
    """The documents that were not read completely at or after a moment."""
    return [doc for doc in documents if (doc.last_complete_at or LONG_AGO) < moment]


def _in_the_way(
    urls: MissingUrls, others: Iterable[ReadDocument], facts: RemovalFacts
) -> dict[str, HoldReason]:
    """The documents because of which missing URLs are held."""
    unread = _unread_since(urls.scan_started_at or urls.missed_at or LONG_AGO, others)
    vanished = {doc.url for doc in facts.vanished}
    if unread:
        return {
            doc.url: HoldReason.VANISHED if doc.url in vanished else HoldReason.UNREAD
            for doc in unread
        }
    return {urls.sitemap: HoldReason.EMPTY if urls.is_empty else HoldReason.UNCONFIRMED}


def _vanished_urls(documents: Iterable[VanishedDocument]) -> dict[str, HoldReason]:
    """The vanished documents whose URLs are held."""
    return {doc.url: HoldReason.VANISHED for doc in documents if doc.url_count}


def _as_read(document: VanishedDocument) -> ReadDocument:
    return ReadDocument(document.id, document.url, document.last_complete_at)


def _of_document(document: VanishedDocument, evidence: RemovalEvidence) -> Removal:
    return Removal(
        document.id, None, evidence, document.last_complete_at, not_after=document.vanished_at
    )


def _of_missing(urls: MissingUrls, evidence: RemovalEvidence) -> Removal:
    return Removal(
        urls.sitemap_id, urls.scan_id, evidence, urls.last_seen_at, not_after=urls.missed_at
    )
