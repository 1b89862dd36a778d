"""Removals: which URLs and documents are missing, and taking away those whose removal is proved.

A scan loads what is missing (`load_missing`, `load_unread_documents`) and what could contradict
(`load_oldest_reads`, `load_incomplete`, `load_parents`); `processor.settlement` decides. Its
decision is stored before it is carried out, so that a later attempt at the scan does the same.
`remove_urls` then removes in batches and tells the change feed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    ColumnElement,
    DateTime,
    Text,
    Update,
    Uuid,
    and_,
    any_,
    bindparam,
    case,
    cast,
    func,
    literal,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.selectable import CTE

from siteatlas.catalog.sitemaps import DONE, READ
from siteatlas.catalog.url_changes import insert_departures, listed_state
from siteatlas.storage.models import Candidate, ChangeKind, RemovalEvidence, SitemapScanState
from siteatlas.storage.schema import (
    SCANS,
    SITEMAP_LINKS,
    SITEMAP_SCANS,
    SITEMAP_URLS,
    SITEMAPS,
    URL_CHANGES,
    table_of,
)

URLS_PER_BATCH = 5_000
GROUPS_PER_BATCH = 200
MAX_LOADED = 10_000

_scan = bindparam("of_scan", type_=BigInteger())
_domain = bindparam("of_domain", type_=Uuid())
_ids = bindparam("ids", type_=ARRAY(Uuid()))


@dataclass(frozen=True, slots=True)
class MissingUrls:
    """The URLs of a document that are missing since the same scan.

    They were there at `last_seen_at` and missed at `missed_at` by a scan that had begun at
    `scan_started_at`; the last read by a later scan, if any, was at `read_again_at`. `is_empty`:
    the document now lists nothing at all.
    """

    sitemap_id: UUID
    sitemap: str
    scan_id: int
    count: int
    read_again_at: datetime | None
    is_empty: bool
    scan_started_at: datetime | None = None
    missed_at: datetime | None = None
    last_seen_at: datetime | None = None


_missing_counts = (
    select(
        SITEMAP_URLS.c.sitemap_id,
        SITEMAP_URLS.c.missing_scan_id.label("scan_id"),
        func.count().label("count"),
    )
    .join(SITEMAPS, SITEMAPS.c.id == SITEMAP_URLS.c.sitemap_id)
    .where(
        SITEMAPS.c.domain_id == _domain,
        SITEMAPS.c.missing_count > 0,
        SITEMAPS.c.gone_at.is_(None),
        SITEMAP_URLS.c.missing_scan_id.is_not(None),
        SITEMAP_URLS.c.removed_at.is_(None),
    )
    .group_by(SITEMAP_URLS.c.sitemap_id, SITEMAP_URLS.c.missing_scan_id)
    .cte("counts")
)
_other_reads = SITEMAP_SCANS.alias("other_reads")
_last_other_read = select(func.max(_other_reads.c.finished_at)).where(
    _other_reads.c.sitemap_id == _missing_counts.c.sitemap_id, _other_reads.c.state.in_(DONE)
)
_load_missing = (
    select(
        _missing_counts.c.sitemap_id,
        SITEMAPS.c.url.label("sitemap"),
        _missing_counts.c.scan_id,
        _missing_counts.c.count,
        _last_other_read.where(_other_reads.c.scan_id > _missing_counts.c.scan_id)
        .scalar_subquery()
        .label("read_again_at"),
        (SITEMAPS.c.url_count <= SITEMAPS.c.missing_count).label("is_empty"),
        SCANS.c.started_at.label("scan_started_at"),
        SITEMAP_SCANS.c.finished_at.label("missed_at"),
        _last_other_read.where(_other_reads.c.finished_at < SITEMAP_SCANS.c.finished_at)
        .scalar_subquery()
        .label("last_seen_at"),
    )
    .join(SITEMAPS, SITEMAPS.c.id == _missing_counts.c.sitemap_id)
    .outerjoin(SCANS, SCANS.c.id == _missing_counts.c.scan_id)
    .outerjoin(
        SITEMAP_SCANS,
        (SITEMAP_SCANS.c.scan_id == _missing_counts.c.scan_id)
        & (SITEMAP_SCANS.c.sitemap_id == _missing_counts.c.sitemap_id),
    )
    .order_by(SITEMAPS.c.url, _missing_counts.c.scan_id)
)


async def load_missing(session: AsyncSession, domain_id: UUID) -> list[MissingUrls]:
    """The missing URLs of a site, by document and the scan that first missed them."""
    rows = await session.execute(_load_missing, {"of_domain": domain_id})
    return [MissingUrls(**row) for row in rows.mappings()]


# The address of a document, and when it was last read completely; None if it never was.
CompleteRead = tuple[str, datetime | None]

# Documents in the way of removals that are looked at, those read longest ago first.
_load_oldest = (
    select(SITEMAPS.c.url, SITEMAPS.c.last_complete_at)
    .where(
        SITEMAPS.c.domain_id == _domain,
        SITEMAPS.c.gone_at.is_(None),
        SITEMAPS.c.id != func.all(bindparam("but", type_=ARRAY(Uuid()))),
    )
    .order_by(SITEMAPS.c.last_complete_at.asc().nulls_first(), SITEMAPS.c.url)
    .limit(20)
)


async def load_oldest_reads(
    session: AsyncSession, domain_id: UUID, but: list[UUID]
) -> list[CompleteRead]:
    """The documents of a site that are not gone, those read longest ago first; at most 20."""
    rows = await session.execute(_load_oldest, {"of_domain": domain_id, "but": but})
    return [(row.url, row.last_complete_at) for row in rows.all()]


async def count_leaving_urls(
    session: AsyncSession, domain_id: UUID, sitemap_ids: list[UUID], up_to: int
) -> int:
    """How many URLs missing in these documents no document of the site lists; at most `up_to`."""
    values = {"of_domain": domain_id, "ids": sitemap_ids, "up_to": up_to}
    return int(await session.scalar(_count_leaving, values) or 0)


def _count_leaving_statement() -> Any:
    """Count the missing URLs of documents that no other document lists, up to a limit.

    Most URLs of the site are missing when this is asked, so that both sets are read once.
    """
    urls, other = SITEMAP_URLS, SITEMAP_URLS.alias("o")
    missing = select(urls.c.url_hash).where(
        urls.c.sitemap_id == any_(bindparam("ids", type_=ARRAY(Uuid()))),
        urls.c.missing_scan_id.is_not(None),
        urls.c.removed_at.is_(None),
    )
    listed = (
        select(other.c.url_hash)
        .join(SITEMAPS, SITEMAPS.c.id == other.c.sitemap_id)
        .where(
            SITEMAPS.c.domain_id == _domain,
            other.c.removed_at.is_(None),
            other.c.missing_scan_id.is_(None),
        )
    )
    leaving = missing.except_(listed).limit(bindparam("up_to")).subquery("leaving")
    return select(func.count()).select_from(leaving)


_count_leaving = _count_leaving_statement()


_store_decision = (
    update(SCANS)
    .where(SCANS.c.id == bindparam("of_scan"))
    .values(removal_decision=bindparam("decision", type_=JSONB()))
)


async def store_decision(session: AsyncSession, scan_id: int, decision: dict[str, Any]) -> None:
    """Store what a scan removes before it does, so that a later attempt does the same."""
    await session.execute(_store_decision, {"of_scan": scan_id, "decision": decision})


_load_decision = select(SCANS.c.removal_decision).where(SCANS.c.id == bindparam("of_scan"))


async def load_decision(session: AsyncSession, scan_id: int) -> dict[str, Any] | None:
    """What an earlier attempt at a scan decided to remove."""
    decision: dict[str, Any] | None = await session.scalar(_load_decision, {"of_scan": scan_id})
    return decision


@dataclass(frozen=True, slots=True)
class Removal:
    """URLs of a document to remove: those missing since a scan, or all of a document (None).

    They vanished between `not_before` and `not_after`.
    """

    sitemap_id: UUID
    missing_scan_id: int | None
    evidence: RemovalEvidence
    not_before: datetime | None = None
    not_after: datetime | None = None


async def remove_urls(
    session: AsyncSession, scan_id: int, removals: Sequence[Removal], *, silent: bool
) -> bool:
    """Remove a batch of URLs of these groups; False when none are left.

    `removals` are at most `GROUPS_PER_BATCH`, all of missing URLs or all of whole documents.
    `silent`: the feed does not tell, because the site has no baseline yet.
    """
    whole = removals[0].missing_scan_id is None
    values: dict[str, Any] = {
        "of_scan": scan_id,
        "is_silent": silent,
        "p_sitemap_id": [removal.sitemap_id for removal in removals],
        "p_evidence": [removal.evidence.value for removal in removals],
        "p_not_before": [removal.not_before for removal in removals],
        "p_not_after": [removal.not_after for removal in removals],
    }
    if whole:
        await session.execute(_forget_content, {"ids": values["p_sitemap_id"]})
    else:
        values["p_missing_scan_id"] = [removal.missing_scan_id for removal in removals]
    statement = _remove_documents if whole else _remove_missing
    return bool(await session.scalar(statement, values))


def _removal_statement(*, whole_documents: bool) -> Any:
    groups = _groups(whole_documents=whole_documents)
    urls = SITEMAP_URLS
    of_group = urls.c.sitemap_id == groups.c.sitemap_id
    if not whole_documents:
        of_group = and_(of_group, urls.c.missing_scan_id == groups.c.missing_scan_id)
    picked = (
        select(
            urls.c.sitemap_id,
            urls.c.url_hash,
            urls.c.missing_scan_id.is_not(None).label("was_missing"),
            groups.c.evidence,
            groups.c.not_before,
            groups.c.not_after,
        )
        .join(urls, of_group)
        .where(urls.c.removed_at.is_(None))
        .limit(URLS_PER_BATCH)
        .with_for_update(of=urls)
        .cte("picked")
    )
    removed = (
        update(urls)
        .where(urls.c.sitemap_id == picked.c.sitemap_id, urls.c.url_hash == picked.c.url_hash)
        .values(removed_at=func.now(), missing_scan_id=None)
        .returning(
            urls.c.sitemap_id,
            urls.c.url_hash,
            urls.c.url,
            listed_state(urls.c).label("before"),
            picked.c.was_missing,
            picked.c.evidence,
            picked.c.not_before,
            picked.c.not_after,
        )
        .cte("removed")
    )
    return (
        select(func.count())
        .select_from(removed)
        .add_cte(
            _told(removed).cte("told"),
            _told_of_origins(removed).cte("told_of_origins"),
            removed_rows_counted(removed).cte("counted"),
        )
    )


def _groups(*, whole_documents: bool) -> CTE:
    columns: dict[str, Any] = {
        "sitemap_id": Uuid(),
        "missing_scan_id": BigInteger(),
        "evidence": Text(),
        "not_before": DateTime(timezone=True),
        "not_after": DateTime(timezone=True),
    }
    if whole_documents:
        del columns["missing_scan_id"]
    arrays = [bindparam(f"p_{name}", type_=ARRAY(type_)) for name, type_ in columns.items()]
    rows = func.unnest(*arrays).table_valued(*columns, name="wanted").render_derived()
    return select(rows).cte("groups")


def _told(removed: CTE) -> Any:
    """The changes of removed rows, unless the scan is silent.

    An earlier change of the entry in this scan gives the state before, unless that is the state in
    another document, see `_told_of_origins`.
    """
    rows = select(
        _scan.label("scan_id"),
        removed.c.sitemap_id,
        removed.c.url_hash,
        literal(ChangeKind.REMOVED, URL_CHANGES.c.kind.type).label("kind"),
        removed.c.url,
        removed.c.before,
        removed.c.evidence,
        removed.c.not_before,
        removed.c.not_after,
    ).where(~bindparam("is_silent", type_=Boolean()))
    names = [column.name for column in rows.selected_columns]
    told = insert(URL_CHANGES).from_select(names, rows)
    return told.on_conflict_do_update(
        index_elements=[URL_CHANGES.c.scan_id, URL_CHANGES.c.sitemap_id, URL_CHANGES.c.url_hash],
        set_={
            "kind": told.excluded.kind,
            "before": case(
                (URL_CHANGES.c.kind == ChangeKind.MOVED, cast(null(), JSONB())),
                else_=URL_CHANGES.c.before,
            ),
            "after": null(),
            "previous_sitemap_id": null(),
            "evidence": told.excluded.evidence,
            "not_after": told.excluded.not_after,
        },
    ).returning(URL_CHANGES.c.scan_id)


def _told_of_origins(removed: CTE) -> Any:
    """The departures of removed URLs from the documents that they moved from in this scan.

    The move is no longer reported: for readers of the feed, the URL leaves the document it was in.
    """
    move = URL_CHANGES.alias("move")
    moves = (
        select(*(column for column in move.c if column.name not in ("not_after", "evidence")))
        .add_columns(removed.c.not_after, removed.c.evidence)
        .where(
            move.c.scan_id == _scan,
            move.c.sitemap_id == removed.c.sitemap_id,
            move.c.url_hash == removed.c.url_hash,
            move.c.kind == ChangeKind.MOVED,
        )
        .subquery("moves")
    )
    return insert_departures(moves, moves.c.evidence).returning(URL_CHANGES.c.scan_id)


def removed_rows_counted(removed: CTE) -> Update:
    """Subtract removed rows from the counts of their documents; `removed` has their ids.

    `was_missing` says whether a row was missing; without it, all were.
    """
    missing: ColumnElement[int] = func.count()
    if "was_missing" in removed.c:
        missing = func.count().filter(removed.c.was_missing)
    counts = (
        select(removed.c.sitemap_id, func.count().label("urls"), missing.label("missing"))
        .group_by(removed.c.sitemap_id)
        .subquery("counts")
    )
    return (
        update(SITEMAPS)
        .where(SITEMAPS.c.id == counts.c.sitemap_id)
        .values(
            url_count=func.greatest(SITEMAPS.c.url_count - counts.c.urls, 0),
            missing_count=func.greatest(SITEMAPS.c.missing_count - counts.c.missing, 0),
        )
    )


_remove_missing = _removal_statement(whole_documents=False)
_remove_documents = _removal_statement(whole_documents=True)
# Else the document, when it comes back as it was, would be unchanged and its URLs stay removed.
_forget_content = (
    update(SITEMAPS)
    .where(SITEMAPS.c.id == any_(bindparam("ids", type_=ARRAY(Uuid()))))
    .values(etag=None, last_modified=None, content_hash=None)
)


@dataclass(frozen=True, slots=True)
class UnreadDocument:
    """A document that is not gone and that a scan did not read.

    `state` is None if the scan never came across it. `candidate_status` is the HTTP status of its
    address if the scan tried that as a candidate. `vanished_again`: an earlier scan found it
    vanished, and this one too.
    """

    id: UUID
    url: str
    requested_url: str | None
    discovery_method: str
    state: SitemapScanState | None
    http_status: int | None
    error_code: str | None
    candidate_status: int | None
    url_count: int
    last_complete_at: datetime | None
    vanished_at: datetime | None
    vanished_scan_id: int | None
    vanished_scan_started_at: datetime | None
    vanished_again: bool = False


_in_scan = (SITEMAP_SCANS.c.sitemap_id == SITEMAPS.c.id) & (SITEMAP_SCANS.c.scan_id == _scan)
_was_read = SITEMAP_SCANS.c.state.in_(READ)
_candidates = table_of(Candidate)
_load_unread = (
    select(
        SITEMAPS.c.id,
        SITEMAPS.c.url,
        SITEMAPS.c.requested_url,
        SITEMAPS.c.discovery_method,
        SITEMAP_SCANS.c.state,
        SITEMAP_SCANS.c.http_status,
        SITEMAP_SCANS.c.error_code,
        _candidates.c.http_status.label("candidate_status"),
        SITEMAPS.c.url_count,
        SITEMAPS.c.last_complete_at,
        SITEMAPS.c.vanished_at,
        SITEMAPS.c.vanished_scan_id,
        SCANS.c.started_at.label("vanished_scan_started_at"),
    )
    .outerjoin(SITEMAP_SCANS, _in_scan)
    .outerjoin(SCANS, SCANS.c.id == SITEMAPS.c.vanished_scan_id)
    .outerjoin(
        _candidates,
        (_candidates.c.domain_id == SITEMAPS.c.domain_id)
        & (_candidates.c.url_hash == SITEMAPS.c.url_hash)
        & (_candidates.c.scan_id == _scan),
    )
    .where(
        SITEMAPS.c.domain_id == _domain,
        SITEMAPS.c.gone_at.is_(None),
        or_(SITEMAP_SCANS.c.state.is_(None), ~_was_read),
    )
    .order_by(SITEMAPS.c.vanished_at.asc().nulls_first(), SITEMAPS.c.url)
    .limit(MAX_LOADED)
)


async def load_unread_documents(
    session: AsyncSession, domain_id: UUID, scan_id: int
) -> list[UnreadDocument]:
    """The documents of a site that are not gone and that a scan did not read."""
    rows = await session.execute(_load_unread, {"of_domain": domain_id, "of_scan": scan_id})
    return [UnreadDocument(**row) for row in rows.mappings()]


_load_incomplete = (
    select(SITEMAPS.c.id)
    .join(SITEMAP_SCANS, _in_scan)
    .where(SITEMAP_SCANS.c.state.not_in(DONE), SITEMAPS.c.gone_at.is_(None))
    .limit(MAX_LOADED)
)


async def load_incomplete(session: AsyncSession, scan_id: int) -> list[UUID]:
    """The documents that a scan requested and did not read in full; gone ones are left out."""
    return list((await session.scalars(_load_incomplete, {"of_scan": scan_id})).all())


@dataclass(frozen=True, slots=True)
class ParentLink:
    """An index that has listed a document; whether the scan has read all of it, or it is gone."""

    child_id: UUID
    parent_id: UUID
    is_read: bool
    is_gone: bool


_parent_scans = SITEMAP_SCANS.alias("parent_scans")
# What an unchanged index lists is on its links; any other document lists no documents.
_names_all = or_(
    _parent_scans.c.state == SitemapScanState.COMPLETE,
    and_(_parent_scans.c.state == SitemapScanState.UNCHANGED, SITEMAPS.c.type != "index"),
)
_load_parents = (
    select(
        SITEMAP_LINKS.c.child_id,
        SITEMAP_LINKS.c.parent_id,
        func.coalesce(_names_all, False).label("is_read"),
        SITEMAPS.c.gone_at.is_not(None).label("is_gone"),
    )
    .join(SITEMAPS, SITEMAPS.c.id == SITEMAP_LINKS.c.parent_id)
    .outerjoin(
        _parent_scans,
        (_parent_scans.c.sitemap_id == SITEMAP_LINKS.c.parent_id)
        & (_parent_scans.c.scan_id == _scan),
    )
    .where(SITEMAP_LINKS.c.child_id == any_(_ids))
)


async def load_parents(
    session: AsyncSession, scan_id: int, children: Collection[UUID]
) -> list[ParentLink]:
    """The indexes that have listed some documents."""
    rows = await session.execute(_load_parents, {"of_scan": scan_id, "ids": list(children)})
    return [ParentLink(*row) for row in rows.all()]


_look_up_ids = select(SITEMAPS.c.id).where(
    SITEMAPS.c.domain_id == _domain, SITEMAPS.c.url_hash == bindparam("its_hash")
)


async def is_other_document(
    session: AsyncSession, domain_id: UUID, url_hash: int, document_id: UUID
) -> bool:
    """Whether the address with this hash is that of another document of the site."""
    values: dict[str, Any] = {"of_domain": domain_id, "its_hash": url_hash}
    found = (await session.scalars(_look_up_ids, values)).first()
    return found is not None and found != document_id


_mark_vanished = (
    update(SITEMAPS)
    .where(SITEMAPS.c.id == any_(_ids), SITEMAPS.c.vanished_at.is_(None))
    .values(vanished_at=func.now(), vanished_scan_id=_scan)
)


async def mark_vanished(session: AsyncSession, scan_id: int, sitemap_ids: Sequence[UUID]) -> None:
    """Note that a scan found documents vanished; earlier notes are kept."""
    if sitemap_ids:
        await session.execute(_mark_vanished, {"of_scan": scan_id, "ids": list(sitemap_ids)})


_mark_gone = (
    update(SITEMAPS)
    .where(SITEMAPS.c.id == any_(_ids), SITEMAPS.c.gone_at.is_(None))
    .values(gone_at=func.now(), url_count=0, missing_count=0)
    .returning(SITEMAPS.c.id, SITEMAPS.c.type)
)


async def mark_gone(session: AsyncSession, sitemap_ids: Sequence[UUID]) -> list[UUID]:
    """Record that documents are gone; return those that had ever been read."""
    if not sitemap_ids:
        return []
    rows = (await session.execute(_mark_gone, {"ids": list(sitemap_ids)})).all()
    return [row.id for row in rows if row.type is not None]


_returned = (
    select(SITEMAPS.c.id, SITEMAPS.c.gone_at)
    .join(SITEMAP_SCANS, _in_scan)
    .where(
        SITEMAPS.c.domain_id == _domain,
        _was_read,
        or_(SITEMAPS.c.gone_at.is_not(None), SITEMAPS.c.vanished_at.is_not(None)),
    )
    .cte("returned")
)
_mark_returned = (
    update(SITEMAPS)
    .where(SITEMAPS.c.id == _returned.c.id)
    .values(gone_at=None, vanished_at=None, vanished_scan_id=None)
    .returning(SITEMAPS.c.id, _returned.c.gone_at)
)


async def mark_returned(session: AsyncSession, domain_id: UUID, scan_id: int) -> list[UUID]:
    """Forget that documents had vanished which a scan has read; return those that were gone."""
    values = {"of_domain": domain_id, "of_scan": scan_id}
    rows = (await session.execute(_mark_returned, values)).all()
    return [row.id for row in rows if row.gone_at is not None]
