"""Statements on documents that a scan did not read, and on those that are gone or back."""

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
_SCAN = bindparam("of_scan", type_=BigInteger())


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


def _groups(*, whole_documents: bool) -> CTE:
    """The groups of URLs to remove, from parameters."""
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


def _removal(*, whole_documents: bool) -> Any:
    """Remove a batch of the URLs of some groups; returns the number of URLs."""
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


def _told(removed: CTE) -> Any:
    """The changes of removed rows, unless the scan is silent.

    An earlier change of the entry in this scan gives the state before, unless that is the state in
    another document, see `_told_of_origins`.
    """
    rows = select(
        _SCAN.label("scan_id"),
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
            move.c.scan_id == _SCAN,
            move.c.sitemap_id == removed.c.sitemap_id,
            move.c.url_hash == removed.c.url_hash,
            move.c.kind == ChangeKind.MOVED,
        )
        .subquery("moves")
    )
    return insert_departures(moves, moves.c.evidence).returning(URL_CHANGES.c.scan_id)


REMOVE_MISSING = _removal(whole_documents=False)
REMOVE_DOCUMENTS = _removal(whole_documents=True)
# Else the document, when it comes back as it was, would be unchanged and its URLs stay removed.
FORGET_CONTENT = (
    update(SITEMAPS)
    .where(SITEMAPS.c.id == any_(bindparam("ids", type_=ARRAY(Uuid()))))
    .values(etag=None, last_modified=None, content_hash=None)
)


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
        await session.execute(FORGET_CONTENT, {"ids": values["p_sitemap_id"]})
    else:
        values["p_missing_scan_id"] = [removal.missing_scan_id for removal in removals]
    statement = REMOVE_DOCUMENTS if whole else REMOVE_MISSING
    return bool(await session.scalar(statement, values))


# Documents in the way of removals that are looked at, those read longest ago first.
MAX_OLDEST = 20
_DOMAIN = bindparam("of_domain", type_=Uuid())


@dataclass(frozen=True, slots=True)
class MissingUrls:
    """The URLs of a document that are missing since the same scan.

    They were there at `last_seen_at` and missed at `missed_at` by a scan that had begun at
    `scan_started_at`; the document was last read at `last_complete_at`. `is_empty`: it then listed
    nothing at all.
    """

    sitemap_id: UUID
    sitemap: str
    scan_id: int
    count: int
    last_complete_at: datetime | None
    is_empty: bool
    scan_started_at: datetime | None = None
    missed_at: datetime | None = None
    last_seen_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """When a document was last read completely; None if it never was."""

    id: UUID
    url: str
    last_complete_at: datetime | None


def _last_read_before(scan_read: Any) -> Any:
    """The end of the last complete read of a document before a given one."""
    earlier = SITEMAP_SCANS.alias("earlier")
    return (
        select(func.max(earlier.c.finished_at))
        .where(
            earlier.c.sitemap_id == scan_read.c.sitemap_id,
            earlier.c.state.in_(DONE),
            earlier.c.finished_at < scan_read.c.finished_at,
        )
        .scalar_subquery()
    )


_COUNTS = (
    select(
        SITEMAP_URLS.c.sitemap_id,
        SITEMAP_URLS.c.missing_scan_id.label("scan_id"),
        func.count().label("count"),
    )
    .join(SITEMAPS, SITEMAPS.c.id == SITEMAP_URLS.c.sitemap_id)
    .where(
        SITEMAPS.c.domain_id == _DOMAIN,
        SITEMAPS.c.missing_count > 0,
        SITEMAPS.c.gone_at.is_(None),
        SITEMAP_URLS.c.missing_scan_id.is_not(None),
        SITEMAP_URLS.c.removed_at.is_(None),
    )
    .group_by(SITEMAP_URLS.c.sitemap_id, SITEMAP_URLS.c.missing_scan_id)
    .cte("counts")
)
LOAD_MISSING = (
    select(
        _COUNTS.c.sitemap_id,
        SITEMAPS.c.url.label("sitemap"),
        _COUNTS.c.scan_id,
        _COUNTS.c.count,
        SITEMAPS.c.last_complete_at,
        (SITEMAPS.c.url_count <= SITEMAPS.c.missing_count).label("is_empty"),
        SCANS.c.started_at.label("scan_started_at"),
        SITEMAP_SCANS.c.finished_at.label("missed_at"),
        _last_read_before(SITEMAP_SCANS).label("last_seen_at"),
    )
    .join(SITEMAPS, SITEMAPS.c.id == _COUNTS.c.sitemap_id)
    .outerjoin(SCANS, SCANS.c.id == _COUNTS.c.scan_id)
    .outerjoin(
        SITEMAP_SCANS,
        (SITEMAP_SCANS.c.scan_id == _COUNTS.c.scan_id)
        & (SITEMAP_SCANS.c.sitemap_id == _COUNTS.c.sitemap_id),
    )
    .order_by(SITEMAPS.c.url, _COUNTS.c.scan_id)
)
LOAD_OLDEST = (
    select(SITEMAPS.c.id, SITEMAPS.c.url, SITEMAPS.c.last_complete_at)
    .where(
        SITEMAPS.c.domain_id == _DOMAIN,
        SITEMAPS.c.gone_at.is_(None),
        SITEMAPS.c.id != func.all(bindparam("but", type_=ARRAY(Uuid()))),
    )
    .order_by(SITEMAPS.c.last_complete_at.asc().nulls_first(), SITEMAPS.c.url)
    .limit(MAX_OLDEST)
)
NOW = select(func.now())
STORE_DECISION = (
    update(SCANS)
    .where(SCANS.c.id == bindparam("of_scan"))
    .values(removal_decision=bindparam("decision", type_=JSONB()))
)
LOAD_DECISION = select(SCANS.c.removal_decision).where(SCANS.c.id == bindparam("of_scan"))


def _leaving() -> Any:
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
            SITEMAPS.c.domain_id == _DOMAIN,
            other.c.removed_at.is_(None),
            other.c.missing_scan_id.is_(None),
        )
    )
    leaving = missing.except_(listed).limit(bindparam("up_to")).subquery("leaving")
    return select(func.count()).select_from(leaving)


COUNT_LEAVING = _leaving()


async def load_missing(session: AsyncSession, domain_id: UUID) -> list[MissingUrls]:
    """The missing URLs of a site, by document and the scan that first missed them."""
    rows = await session.execute(LOAD_MISSING, {"of_domain": domain_id})
    return [MissingUrls(**row) for row in rows.mappings()]


async def load_oldest_reads(
    session: AsyncSession, domain_id: UUID, but: list[UUID]
) -> list[ReadDocument]:
    """The documents of a site that are not gone, those read longest ago first; at most 20."""
    rows = await session.execute(LOAD_OLDEST, {"of_domain": domain_id, "but": but})
    return [ReadDocument(*row) for row in rows.all()]


async def database_time(session: AsyncSession) -> datetime:
    """The time that all stored times are compared with."""
    return (await session.execute(NOW)).scalar_one()


async def count_leaving_urls(
    session: AsyncSession, domain_id: UUID, sitemap_ids: list[UUID], up_to: int
) -> int:
    """How many URLs missing in these documents no document of the site lists; at most `up_to`."""
    values = {"of_domain": domain_id, "ids": sitemap_ids, "up_to": up_to}
    return int(await session.scalar(COUNT_LEAVING, values) or 0)


async def store_decision(session: AsyncSession, scan_id: int, decision: dict[str, Any]) -> None:
    """Store what a scan removes before it does, so that a later attempt does the same."""
    await session.execute(STORE_DECISION, {"of_scan": scan_id, "decision": decision})


async def load_decision(session: AsyncSession, scan_id: int) -> dict[str, Any] | None:
    """What an earlier attempt at a scan decided to remove."""
    decision: dict[str, Any] | None = await session.scalar(LOAD_DECISION, {"of_scan": scan_id})
    return decision


MAX_LOADED = 10_000
CANDIDATES = table_of(Candidate)
_IDS = bindparam("ids", type_=ARRAY(Uuid()))
IN_SCAN = (SITEMAP_SCANS.c.sitemap_id == SITEMAPS.c.id) & (SITEMAP_SCANS.c.scan_id == _SCAN)
WAS_READ = SITEMAP_SCANS.c.state.in_(READ)


@dataclass(frozen=True, slots=True)
class UnreadDocument:
    """A document that is not gone and that a scan did not read.

    `state` is None if the scan never came across it. `candidate_status` is the HTTP status of its
    address if the scan tried that as a candidate.
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
    vanished_scan_started_at: datetime | None


@dataclass(frozen=True, slots=True)
class ParentLink:
    """An index that has listed a document; whether the scan has read all of it, or it is gone."""

    child_id: UUID
    parent_id: UUID
    is_read: bool
    is_gone: bool


LOAD_UNREAD = (
    select(
        SITEMAPS.c.id,
        SITEMAPS.c.url,
        SITEMAPS.c.requested_url,
        SITEMAPS.c.discovery_method,
        SITEMAP_SCANS.c.state,
        SITEMAP_SCANS.c.http_status,
        SITEMAP_SCANS.c.error_code,
        CANDIDATES.c.http_status.label("candidate_status"),
        SITEMAPS.c.url_count,
        SITEMAPS.c.last_complete_at,
        SITEMAPS.c.vanished_at,
        SCANS.c.started_at.label("vanished_scan_started_at"),
    )
    .outerjoin(SITEMAP_SCANS, IN_SCAN)
    .outerjoin(SCANS, SCANS.c.id == SITEMAPS.c.vanished_scan_id)
    .outerjoin(
        CANDIDATES,
        (CANDIDATES.c.domain_id == SITEMAPS.c.domain_id)
        & (CANDIDATES.c.url_hash == SITEMAPS.c.url_hash)
        & (CANDIDATES.c.scan_id == _SCAN),
    )
    .where(
        SITEMAPS.c.domain_id == _DOMAIN,
        SITEMAPS.c.gone_at.is_(None),
        or_(SITEMAP_SCANS.c.state.is_(None), ~WAS_READ),
    )
    .order_by(SITEMAPS.c.vanished_at.asc().nulls_first(), SITEMAPS.c.url)
    .limit(MAX_LOADED)
)
LOAD_INCOMPLETE = (
    select(SITEMAPS.c.id)
    .join(SITEMAP_SCANS, IN_SCAN)
    .where(SITEMAP_SCANS.c.state.not_in(DONE), SITEMAPS.c.gone_at.is_(None))
    .limit(MAX_LOADED)
)
_PARENT_SCANS = SITEMAP_SCANS.alias("parent_scans")
# What an unchanged index lists is on its links; any other document lists no documents.
_NAMES_ALL = or_(
    _PARENT_SCANS.c.state == SitemapScanState.COMPLETE,
    and_(_PARENT_SCANS.c.state == SitemapScanState.UNCHANGED, SITEMAPS.c.type != "index"),
)
LOAD_PARENTS = (
    select(
        SITEMAP_LINKS.c.child_id,
        SITEMAP_LINKS.c.parent_id,
        func.coalesce(_NAMES_ALL, False).label("is_read"),
        SITEMAPS.c.gone_at.is_not(None).label("is_gone"),
    )
    .join(SITEMAPS, SITEMAPS.c.id == SITEMAP_LINKS.c.parent_id)
    .outerjoin(
        _PARENT_SCANS,
        (_PARENT_SCANS.c.sitemap_id == SITEMAP_LINKS.c.parent_id)
        & (_PARENT_SCANS.c.scan_id == _SCAN),
    )
    .where(SITEMAP_LINKS.c.child_id == any_(_IDS))
)
LOOK_UP_IDS = select(SITEMAPS.c.id).where(
    SITEMAPS.c.domain_id == _DOMAIN, SITEMAPS.c.url_hash == bindparam("its_hash")
)
MARK_VANISHED = (
    update(SITEMAPS)
    .where(SITEMAPS.c.id == any_(_IDS), SITEMAPS.c.vanished_at.is_(None))
    .values(vanished_at=func.now(), vanished_scan_id=_SCAN)
)
MARK_GONE = (
    update(SITEMAPS)
    .where(SITEMAPS.c.id == any_(_IDS), SITEMAPS.c.gone_at.is_(None))
    .values(gone_at=func.now(), url_count=0, missing_count=0)
    .returning(SITEMAPS.c.id, SITEMAPS.c.type)
)
_RETURNED = (
    select(SITEMAPS.c.id, SITEMAPS.c.gone_at)
    .join(SITEMAP_SCANS, IN_SCAN)
    .where(
        SITEMAPS.c.domain_id == _DOMAIN,
        WAS_READ,
        or_(SITEMAPS.c.gone_at.is_not(None), SITEMAPS.c.vanished_at.is_not(None)),
    )
    .cte("returned")
)
MARK_RETURNED = (
    update(SITEMAPS)
    .where(SITEMAPS.c.id == _RETURNED.c.id)
    .values(gone_at=None, vanished_at=None, vanished_scan_id=None)
    .returning(SITEMAPS.c.id, _RETURNED.c.gone_at)
)


async def load_unread_documents(
    session: AsyncSession, domain_id: UUID, scan_id: int
) -> list[UnreadDocument]:
    """The documents of a site that are not gone and that a scan did not read."""
    rows = await session.execute(LOAD_UNREAD, {"of_domain": domain_id, "of_scan": scan_id})
    return [UnreadDocument(**row) for row in rows.mappings()]


async def load_incomplete(session: AsyncSession, scan_id: int) -> list[UUID]:
    """The documents that a scan requested and did not read in full; gone ones are left out."""
    return list((await session.scalars(LOAD_INCOMPLETE, {"of_scan": scan_id})).all())


async def load_parents(
    session: AsyncSession, scan_id: int, children: Collection[UUID]
) -> list[ParentLink]:
    """The indexes that have listed some documents."""
    rows = await session.execute(LOAD_PARENTS, {"of_scan": scan_id, "ids": list(children)})
    return [ParentLink(*row) for row in rows.all()]


async def is_other_document(
    session: AsyncSession, domain_id: UUID, url_hash: int, document_id: UUID
) -> bool:
    """Whether the address with this hash is that of another document of the site."""
    values: dict[str, Any] = {"of_domain": domain_id, "its_hash": url_hash}
    found = (await session.scalars(LOOK_UP_IDS, values)).first()
    return found is not None and found != document_id


async def mark_vanished(session: AsyncSession, scan_id: int, sitemap_ids: Sequence[UUID]) -> None:
    """Note that a scan found documents vanished; earlier notes are kept."""
    if sitemap_ids:
        await session.execute(MARK_VANISHED, {"of_scan": scan_id, "ids": list(sitemap_ids)})


async def mark_gone(session: AsyncSession, sitemap_ids: Sequence[UUID]) -> list[UUID]:
    """Record that documents are gone; return those that had ever been read."""
    if not sitemap_ids:
        return []
    rows = (await session.execute(MARK_GONE, {"ids": list(sitemap_ids)})).all()
    return [row.id for row in rows if row.type is not None]


async def mark_returned(session: AsyncSession, domain_id: UUID, scan_id: int) -> list[UUID]:
    """Forget that documents had vanished which a scan has read; return those that were gone."""
    values = {"of_domain": domain_id, "of_scan": scan_id}
    rows = (await session.execute(MARK_RETURNED, values)).all()
    return [row.id for row in rows if row.gone_at is not None]
