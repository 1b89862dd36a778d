"""Write statements for documents: what a scan found, and their counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    Boolean,
    ColumnElement,
    Uuid,
    any_,
    bindparam,
    case,
    delete,
    exists,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.dml import ReturningUpdate

from siteatlas.storage.models import (
    Candidate,
    Sitemap,
    SitemapLink,
    SitemapScan,
    SitemapScanState,
    SitemapStatus,
)
from siteatlas.storage.statements.bulk import (
    insert_rows,
    insert_values,
    replace_rows,
    update_rows,
)
from siteatlas.storage.tables import SITEMAP_LINKS, SITEMAP_SCANS, SITEMAP_URLS, SITEMAPS

# Reads without moved dates after which the dates of a document are trusted again.
TRUSTED_AFTER_READS = 2
# Statements of every scan are built once: building one takes as long as running it.
READ = (SitemapScanState.COMPLETE, SitemapScanState.UNCHANGED, SitemapScanState.CUT)


@dataclass(slots=True)
class EndedReads:
    """The ids of stored documents whose reading ended, and of those that were found unchanged.

    `complete` ones were read to the end; `not_modified` ones by a response with the status 304;
    `same_content` have the bytes of the last complete read.
    """

    ids: list[UUID] = field(default_factory=list)
    complete: list[UUID] = field(default_factory=list)
    not_modified: list[UUID] = field(default_factory=list)
    same_content: list[UUID] = field(default_factory=list)


def stored_url_count(sitemap_id: Any) -> Any:
    """The number of URLs stored for a document, as a subquery of a write statement."""
    return (
        select(func.count())
        .where(SITEMAP_URLS.c.sitemap_id == sitemap_id, SITEMAP_URLS.c.removed_at.is_(None))
        .scalar_subquery()
    )


def _among(name: str) -> ColumnElement[bool]:
    """Whether a document is in a list of ids that the statement is given."""
    return SITEMAPS.c.id == any_(bindparam(name, type_=ARRAY(Uuid())))


def _note_reading() -> ReturningUpdate[Any]:
    """The UPDATE of stored documents whose reading ended.

    Dates that did not move, because the document is unchanged, help them to be trusted again.
    """
    is_unchanged = or_(_among("not_modified"), _among("same_content"))
    settles = is_unchanged & ~SITEMAPS.c.lastmod_trusted
    trusted = settles & (SITEMAPS.c.lastmod_streak + 1 >= TRUSTED_AFTER_READS)
    return (
        update(SITEMAPS)
        .where(_among("ids"))
        .values(
            last_read_at=func.now(),
            last_complete_at=case(
                (or_(is_unchanged, _among("complete")), func.now()),
                else_=SITEMAPS.c.last_complete_at,
            ),
            not_modified_count=case(
                (_among("not_modified"), SITEMAPS.c.not_modified_count + 1),
                (or_(_among("same_content"), _among("complete")), 0),
                else_=SITEMAPS.c.not_modified_count,
            ),
            lastmod_trusted=or_(SITEMAPS.c.lastmod_trusted, trusted),
            lastmod_streak=case(
                (trusted, 0),
                (settles, SITEMAPS.c.lastmod_streak + 1),
                else_=SITEMAPS.c.lastmod_streak,
            ),
        )
        .returning(SITEMAPS.c.id, (SITEMAPS.c.url_count - SITEMAPS.c.missing_count).label("shown"))
    )


NOTE_READING = _note_reading()
_READ_ROW = insert(SITEMAPS).values(
    last_read_at=func.now(),
    last_complete_at=case((bindparam("is_complete", type_=Boolean()), func.now()), else_=None),
)
# What a read writes to a document, apart from its address.
READ_COLUMNS = (
    "last_read_at",
    "last_complete_at",
    "status",
    "type",
    "http_status",
    "error_code",
    "error",
    "url_count",
    "missing_count",
    "etag",
    "last_modified",
    "content_hash",
    "wire_bytes",
    "decoded_bytes",
    "read_version",
    "baseline_scan_id",
    "is_window",
    "url_breakdown",
)
# A commit whose answer was lost may have left the row before its document was read.
INSERT_READ = _READ_ROW.on_conflict_do_update(
    index_elements=[SITEMAPS.c.id],
    set_={name: _READ_ROW.excluded[name] for name in READ_COLUMNS},
)
MARK_OPENED = (
    update(SITEMAP_SCANS)
    .where(
        SITEMAP_SCANS.c.scan_id == bindparam("of_scan"),
        SITEMAP_SCANS.c.sitemap_id == bindparam("of_sitemap"),
        SITEMAP_SCANS.c.state == SitemapScanState.PENDING,
    )
    .values(http_status=bindparam("answered"))
)
UNLINK = delete(SITEMAP_LINKS).where(
    SITEMAP_LINKS.c.parent_id == bindparam("parent"),
    SITEMAP_LINKS.c.child_id.not_in(
        select(func.unnest(bindparam("children", type_=ARRAY(Uuid()))))
    ),
)
# How long a document that a user named is requested after it was last read.
MANUAL_GRACE_DAYS = 30
LOAD_MANUAL = (
    select(func.coalesce(SITEMAPS.c.requested_url, SITEMAPS.c.url).label("url"))
    .where(
        SITEMAPS.c.domain_id == bindparam("domain"),
        SITEMAPS.c.discovery_method == "manual",
        or_(
            SITEMAPS.c.status == SitemapStatus.COMPLETED,
            exists().where(
                SITEMAP_SCANS.c.sitemap_id == SITEMAPS.c.id,
                SITEMAP_SCANS.c.state.in_(READ),
                SITEMAP_SCANS.c.finished_at > func.now() - timedelta(days=MANUAL_GRACE_DAYS),
            ),
        ),
    )
    .order_by(SITEMAPS.c.created_at, SITEMAPS.c.url)
)


async def load_manual_documents(session: AsyncSession, domain_id: UUID) -> tuple[str, ...]:
    """Addresses of the documents that a user submitted and that were read as sitemaps.

    A failing one is still requested, but not forever: the site may have abandoned it.
    """
    return tuple((await session.scalars(LOAD_MANUAL, {"domain": domain_id})).all())


async def insert_sitemaps(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert documents that are new to a site."""
    await insert_rows(session, Sitemap, rows)


async def insert_read_sitemaps(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert documents that are new to a site and were read now; `is_complete`: to the end."""
    await insert_values(session, INSERT_READ, rows)


async def update_sitemaps(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> None:
    """Update stored documents with what a scan found; each row contains its `id`."""
    await update_rows(session, Sitemap, rows)


async def note_reading(session: AsyncSession, ended: EndedReads) -> dict[UUID, int]:
    """Record that stored documents were read now; return how many URLs each of them shows."""
    rows = (await session.execute(NOTE_READING, asdict(ended))).all()
    return {row.id: row.shown for row in rows}


async def link_sitemaps(session: AsyncSession, pairs: Sequence[tuple[UUID, UUID]]) -> None:
    """Record which index lists which child."""
    rows = [{"parent_id": parent, "child_id": child} for parent, child in pairs]
    await insert_rows(session, SitemapLink, rows)


async def replace_links(
    session: AsyncSession, children_by_parent: Mapping[UUID, Sequence[UUID]]
) -> None:
    """Remove the links of indexes to documents that they no longer list."""
    for parent_id, children in sorted(children_by_parent.items()):
        await session.execute(UNLINK, {"parent": parent_id, "children": list(children)})


async def mark_pending(session: AsyncSession, scan_id: int, sitemap_ids: Sequence[UUID]) -> None:
    """Put documents on the frontier of a scan."""
    rows = [{"scan_id": scan_id, "sitemap_id": sitemap_id} for sitemap_id in sitemap_ids]
    await insert_rows(session, SitemapScan, rows)


async def mark_opened(
    session: AsyncSession, scan_id: int, answers: Mapping[UUID, int | None]
) -> None:
    """Record that documents of a scan responded and are being read; their rows stay pending."""
    rows = [
        {"of_scan": scan_id, "of_sitemap": sitemap_id, "answered": status}
        for sitemap_id, status in sorted(answers.items())
    ]
    if rows:
        await session.execute(MARK_OPENED, rows)


async def close_sitemap_scans(
    session: AsyncSession, scan_id: int, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Record how the reading of documents ended."""
    complete = [{"scan_id": scan_id, **row} for row in rows]
    await replace_rows(session, SitemapScan, complete, moment="finished_at")


async def record_candidates(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> None:
    """Record every candidate address where a scan looked for a sitemap."""
    await replace_rows(session, Candidate, rows, moment="checked_at")
