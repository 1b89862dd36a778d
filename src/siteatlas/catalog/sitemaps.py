"""Sitemap documents: what a scan knows of them, what it writes about them, and how they are shown.

A scan loads the documents of its site before it begins (`load_sitemaps`), writes what it finds in
batches, and records in `sitemap_scans` how the read of each one ended. The views are the list of a
site, the tree of its indexes, and the last reads of a document.
Statements that every scan runs are built once: building one costs as much as running it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from pydantic import Field
from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    ColumnElement,
    Select,
    Uuid,
    any_,
    bindparam,
    case,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.dml import ReturningUpdate

from siteatlas.catalog.paging import CursorScope, Page, page_size, read_page, text_key, uuid_key
from siteatlas.catalog.urls import insert_rows, insert_values, replace_rows, update_rows
from siteatlas.catalog.views import (
    Count,
    Example,
    Name,
    Paragraph,
    Seconds,
    Shown,
    SitemapTypeWord,
    SmallCount,
    Url,
    View,
    Word,
    declared,
    one_of,
    select_view,
)
from siteatlas.errors import SitemapNotFound, UrlLimitReached
from siteatlas.scanner.events import DiscoveryMethod, SitemapType
from siteatlas.storage.models import (
    Candidate,
    Domain,
    Sitemap,
    SitemapLink,
    SitemapScan,
    SitemapScanState,
    SitemapStatus,
)
from siteatlas.storage.schema import SITEMAP_LINKS, SITEMAP_SCANS, SITEMAP_URLS, SITEMAPS
from siteatlas.storage.session import Reader

DONE = (SitemapScanState.COMPLETE, SitemapScanState.UNCHANGED)
READ = (SitemapScanState.COMPLETE, SitemapScanState.UNCHANGED, SitemapScanState.CUT)
# The type of a document that lists documents.
INDEX = "index"

MAX_LOADED = 10_000
MAX_LINKS_LOADED = 10 * MAX_LOADED
# How long a document that a user named is requested after it was last read.
MANUAL_GRACE_DAYS = 30
MAX_PARENTS_SHOWN = 10


class KnownSitemap(NamedTuple):
    """A stored document; `read_count` is what the current scan has read in it.

    `lastmod` is that which an index lists for it. `shown_count` is how many URLs it showed when it
    was last read. `is_gone`: it vanished, or may have. `children` are what an index lists; they are
    None if they were not loaded. The fields are in the order of the selected columns.
    """

    id: UUID
    url: str
    requested_url: str | None
    discovery_method: str
    type: str | None = None
    lastmod: datetime | None = None
    etag: str | None = None
    last_modified: str | None = None
    content_hash: str | None = None
    wire_bytes: int = 0
    read_version: int | None = None
    not_modified_count: int = 0
    validator_lies: int = 0
    shown_count: int = 0
    is_gone: bool = False
    state: SitemapScanState | None = None
    read_count: int = 0
    children: tuple[UUID, ...] | None = None


SITEMAP_COLUMNS = (
    SITEMAPS.c.id,
    SITEMAPS.c.url,
    SITEMAPS.c.requested_url,
    SITEMAPS.c.discovery_method,
    SITEMAPS.c.type,
    SITEMAPS.c.lastmod,
    SITEMAPS.c.etag,
    SITEMAPS.c.last_modified,
    SITEMAPS.c.content_hash,
    SITEMAPS.c.wire_bytes,
    SITEMAPS.c.read_version,
    SITEMAPS.c.not_modified_count,
    SITEMAPS.c.validator_lies,
    (SITEMAPS.c.url_count - SITEMAPS.c.missing_count).label("shown_count"),
    or_(SITEMAPS.c.gone_at.is_not(None), SITEMAPS.c.vanished_at.is_not(None)).label("is_gone"),
)
_of_this_scan = (SITEMAP_SCANS.c.sitemap_id == SITEMAPS.c.id) & (
    SITEMAP_SCANS.c.scan_id == bindparam("scan")
)
_select_known = select(
    *SITEMAP_COLUMNS,
    SITEMAP_SCANS.c.state,
    func.coalesce(SITEMAP_SCANS.c.url_count, 0).label("read_count"),
)
_load_known = (
    _select_known.outerjoin_from(SITEMAPS, SITEMAP_SCANS, _of_this_scan)
    .where(SITEMAPS.c.domain_id == bindparam("domain"))
    .limit(MAX_LOADED + 1)
)
_count_sitemaps = select(func.count()).where(SITEMAPS.c.domain_id == bindparam("domain"))
# A resumed scan has touched no more documents than it may read, but for redirects.
_load_touched = _select_known.join_from(SITEMAPS, SITEMAP_SCANS, _of_this_scan).limit(
    2 * MAX_LOADED
)


async def load_sitemaps(
    session: AsyncSession, domain_id: UUID, scan_id: int, *, resumed: bool
) -> tuple[dict[UUID, KnownSitemap], int]:
    """The documents that a scan must know before it begins or is resumed, and how many there are.

    Not all of them are loaded if the site has too many.
    """
    values = {"domain": domain_id, "scan": scan_id}
    rows: Sequence[Any] = (await session.execute(_load_known, values)).all()
    stored = len(rows)
    if stored > MAX_LOADED:
        stored = (await session.execute(_count_sitemaps, values)).scalar_one()
        rows = (await session.execute(_load_touched, values)).all() if resumed else ()
    loaded = {row.id: known_sitemap(row) for row in rows}
    return await with_children(session, loaded), stored


_load_children = (
    select(SITEMAP_LINKS.c.parent_id, SITEMAP_LINKS.c.child_id)
    .where(SITEMAP_LINKS.c.parent_id == any_(bindparam("parents", type_=ARRAY(Uuid()))))
    .order_by(SITEMAP_LINKS.c.parent_id, SITEMAP_LINKS.c.child_id)
    .limit(MAX_LINKS_LOADED + 1)
)


async def with_children(
    session: Reader, known: Mapping[UUID, KnownSitemap]
) -> dict[UUID, KnownSitemap]:
    """The loaded documents, with what those of them list that are indexes.

    Without, if there are too many links: an index is then read, whether it has changed or not.
    """
    indexes = [one.id for one in known.values() if one.type == INDEX]
    if not indexes:
        return dict(known)
    rows = (await session.execute(_load_children, {"parents": indexes})).all()
    if len(rows) > MAX_LINKS_LOADED:
        return dict(known)
    children: dict[UUID, list[UUID]] = {parent_id: [] for parent_id in indexes}
    for parent_id, child_id in rows:
        children[parent_id].append(child_id)
    listed = {key: known[key]._replace(children=tuple(ids)) for key, ids in children.items()}
    return {**known, **listed}


_look_up = _select_known.outerjoin_from(SITEMAPS, SITEMAP_SCANS, _of_this_scan).where(
    SITEMAPS.c.domain_id == bindparam("domain"),
    SITEMAPS.c.url_hash == any_(bindparam("hashes", type_=ARRAY(BigInteger()))),
)


async def look_up_sitemaps(
    session: AsyncSession, domain_id: UUID, scan_id: int, hashes: Sequence[int]
) -> list[KnownSitemap]:
    """The stored documents among those with these hashes of their addresses."""
    values = {"domain": domain_id, "scan": scan_id, "hashes": list(hashes)}
    return [known_sitemap(row) for row in (await session.execute(_look_up, values)).all()]


def known_sitemap(row: Sequence[Any]) -> KnownSitemap:
    """A row that ends with `SITEMAP_COLUMNS`, `state` and `read_count`."""
    return KnownSitemap(*row[-len(KnownSitemap._fields) + 1 :])


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


class LastRead(NamedTuple):
    """The columns of a document that the end of a read needs; the defaults are of a new one."""

    read_version: int | None = None
    last_complete_at: datetime | None = None
    validator_lies: int = 0
    lastmod_trusted: bool = True
    lastmod_streak: int = 0
    lastmod_sample: Mapping[str, int] | None = None
    type: str | None = None


NEVER_READ = LastRead()
_load_last_read = select(*(SITEMAPS.c[name] for name in LastRead._fields)).where(
    SITEMAPS.c.id == bindparam("sitemap")
)


async def load_last_read(session: AsyncSession, sitemap_id: UUID) -> LastRead:
    """What is stored of the reads of a document."""
    row = (await session.execute(_load_last_read, {"sitemap": sitemap_id})).one_or_none()
    return LastRead(*row) if row else NEVER_READ


async def insert_sitemaps(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert documents that are new to a site."""
    await insert_rows(session, Sitemap, rows)


_insert_read_row = insert(SITEMAPS).values(
    last_read_at=func.now(),
    last_complete_at=case((bindparam("is_complete", type_=Boolean()), func.now()), else_=None),
)
# A commit whose answer was lost may have left the row before its document was read.
_insert_or_update_read = _insert_read_row.on_conflict_do_update(
    index_elements=[SITEMAPS.c.id],
    set_={
        name: _insert_read_row.excluded[name]
        # What a read writes to a document, apart from its address.
        for name in (
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
            "rules_version",
            "baseline_scan_id",
            "is_window",
            "url_breakdown",
        )
    },
)


async def insert_read_sitemaps(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert documents that are new to a site and were read now; `is_complete`: to the end."""
    await insert_values(session, _insert_or_update_read, rows)


async def update_sitemaps(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> None:
    """Update stored documents with what a scan found; each row contains its `id`."""
    await update_rows(session, Sitemap, rows)


def stored_url_count(sitemap_id: Any) -> Any:
    """The number of URLs stored for a document, as a subquery of a write statement."""
    return (
        select(func.count())
        .where(SITEMAP_URLS.c.sitemap_id == sitemap_id, SITEMAP_URLS.c.removed_at.is_(None))
        .scalar_subquery()
    )


def _note_reading_statement() -> ReturningUpdate[Any]:
    """The UPDATE of stored documents whose reading ended.

    Dates that did not move, because the document is unchanged, help them to be trusted again.
    """
    is_unchanged = or_(_among("not_modified"), _among("same_content"))
    settles = is_unchanged & ~SITEMAPS.c.lastmod_trusted
    reads_until_trusted = 2
    trusted = settles & (SITEMAPS.c.lastmod_streak + 1 >= reads_until_trusted)
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


def _among(name: str) -> ColumnElement[bool]:
    return SITEMAPS.c.id == any_(bindparam(name, type_=ARRAY(Uuid())))


_note_reading = _note_reading_statement()


async def note_reading(
    session: AsyncSession,
    ids: Sequence[UUID],
    *,
    complete: Sequence[UUID],
    not_modified: Sequence[UUID],
    same_content: Sequence[UUID],
) -> dict[UUID, int]:
    """Record that stored documents were read now; return how many URLs each of them shows.

    `complete` ones were read to the end. The others that are named were found unchanged: by a
    response with the status 304, or because they have the bytes of the last complete read.
    """
    values = {
        "ids": ids,
        "complete": complete,
        "not_modified": not_modified,
        "same_content": same_content,
    }
    rows = (await session.execute(_note_reading, values)).all()
    return {row.id: row.shown for row in rows}


async def link_sitemaps(session: AsyncSession, pairs: Sequence[tuple[UUID, UUID]]) -> None:
    """Record which index lists which child."""
    rows = [{"parent_id": parent, "child_id": child} for parent, child in pairs]
    await insert_rows(session, SitemapLink, rows)


_unlink = delete(SITEMAP_LINKS).where(
    SITEMAP_LINKS.c.parent_id == bindparam("parent"),
    SITEMAP_LINKS.c.child_id.not_in(
        select(func.unnest(bindparam("children", type_=ARRAY(Uuid()))))
    ),
)


async def replace_links(
    session: AsyncSession, children_by_parent: Mapping[UUID, Sequence[UUID]]
) -> None:
    """Remove the links of indexes to documents that they no longer list."""
    for parent_id, children in sorted(children_by_parent.items()):
        await session.execute(_unlink, {"parent": parent_id, "children": list(children)})


async def mark_pending(session: AsyncSession, scan_id: int, sitemap_ids: Sequence[UUID]) -> None:
    """Put documents on the frontier of a scan."""
    rows = [{"scan_id": scan_id, "sitemap_id": sitemap_id} for sitemap_id in sitemap_ids]
    await insert_rows(session, SitemapScan, rows)


_mark_opened = (
    update(SITEMAP_SCANS)
    .where(
        SITEMAP_SCANS.c.scan_id == bindparam("of_scan"),
        SITEMAP_SCANS.c.sitemap_id == bindparam("of_sitemap"),
        SITEMAP_SCANS.c.state == SitemapScanState.PENDING,
    )
    .values(http_status=bindparam("answered"))
)


async def mark_opened(
    session: AsyncSession, scan_id: int, answers: Mapping[UUID, int | None]
) -> None:
    """Record that documents of a scan responded and are being read; their rows stay pending."""
    rows = [
        {"of_scan": scan_id, "of_sitemap": sitemap_id, "answered": status}
        for sitemap_id, status in sorted(answers.items())
    ]
    if rows:
        await session.execute(_mark_opened, rows)


async def close_sitemap_scans(
    session: AsyncSession, scan_id: int, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Record how the reading of documents ended."""
    complete = [{"scan_id": scan_id, **row} for row in rows]
    await replace_rows(session, SitemapScan, complete, moment="finished_at")


async def record_candidates(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> None:
    """Record every candidate address where a scan looked for a sitemap."""
    await replace_rows(session, Candidate, rows, moment="checked_at")


@dataclass(frozen=True, slots=True)
class SitemapView(View):
    """One document; `job_id` is the job that read it last."""

    id: Annotated[UUID, Example(Shown.sitemap_id)]
    url: Annotated[Url, Example("https://example.com/sitemap.xml")]
    domain: Annotated[Name, Example("example.com")]
    domain_id: Annotated[UUID, Example(Shown.domain_id)]
    type: Annotated[SitemapTypeWord | None, Example("standard")]
    discovery_method: Annotated[str, one_of(DiscoveryMethod), Example("robots_txt")]
    status: Annotated[SitemapStatus, one_of(SitemapStatus), Example("completed")]
    job_id: Annotated[UUID, Example(Shown.job_id)]
    created_by: Annotated[UUID, Example(Shown.user_id)]
    created_at: Annotated[datetime, Example(Shown.noon)]
    last_read_at: Annotated[datetime | None, Example(Shown.later)]
    url_count: Annotated[
        Count,
        Example(12),
        Field(
            description="Number of listed URLs, including those that are missing without proof of "
            "their removal."
        ),
    ]
    http_status: Annotated[SmallCount | None, Example(200)]
    wire_bytes: Annotated[Count, Example(512)]
    decoded_bytes: Annotated[Count, Example(2048)]
    fetch_seconds: Annotated[Seconds, Example(0.2)]
    lastmod: datetime | None
    parent_ids: Annotated[list[UUID], declared(maxItems=MAX_PARENTS_SHOWN), Example([])]
    error_code: Word | None
    error: Paragraph | None
    limited: Annotated[
        bool,
        Example(False),
        Field(
            description="Whether the last scan that read it reached its maximum number of URLs in "
            "it. "
            "Its status remains `completed`."
        ),
    ]


async def find_sitemap(session: AsyncSession, sitemap_id: UUID) -> SitemapView:
    """The document with this id, unless its site was deleted."""
    row = (await session.execute(_select_sitemaps().where(Sitemap.id == sitemap_id))).one_or_none()
    if row is None:
        raise SitemapNotFound
    return SitemapView(*row)


async def list_sitemaps(
    session: AsyncSession,
    domain_id: UUID,
    *,
    type: str | None = None,
    status: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[SitemapView]:
    """The documents of a site, by id."""
    scope = CursorScope("sitemaps", (domain_id, type, status))
    after = scope.read(cursor, uuid_key)
    size = page_size(limit)
    statement = _select_sitemaps().where(Sitemap.domain_id == domain_id)
    if type is not None:
        statement = statement.where(Sitemap.type == type)
    if status is not None:
        statement = statement.where(Sitemap.status == status)
    if after is not None:
        statement = statement.where(Sitemap.id > after)
    statement = statement.order_by(Sitemap.id)
    return await read_page(session, statement, size, SitemapView, lambda row: scope.write(row.id))


def _select_sitemaps() -> Select[*tuple[Any, ...]]:
    parents = (
        select(SitemapLink.parent_id)
        .where(SitemapLink.child_id == Sitemap.id)
        .order_by(SitemapLink.parent_id)
        .limit(MAX_PARENTS_SHOWN)
        .correlate(Sitemap)
        .scalar_subquery()
    )
    statement = select_view(
        SitemapView,
        Sitemap,
        domain=Domain.domain,
        job_id=Sitemap.last_job_id,
        parent_ids=func.array(parents, type_=ARRAY(Uuid())),
        limited=Sitemap.error_code.is_not_distinct_from(UrlLimitReached.code),
    )
    kept = Domain.deleted_at.is_(None)
    return statement.join(Domain, Domain.id == Sitemap.domain_id).where(kept)


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One document in the tree; `child_count` is there for an index."""

    id: UUID
    url: str
    type: str | None
    status: SitemapStatus
    discovery_method: str
    url_count: int
    missing_count: int
    wire_bytes: int
    lastmod: datetime | None
    http_status: int | None
    error_code: str | None
    gone_at: datetime | None
    child_count: int


async def tree_roots(
    session: AsyncSession, domain_id: UUID, *, cursor: str | None = None
) -> Page[TreeNode]:
    """The documents that no index lists, and the indexes that were found without another index.

    Indexes may list each other; without the second rule, such a site would have no root.
    """
    listed = exists().where(SitemapLink.child_id == Sitemap.id)
    is_entrance = (Sitemap.type == SitemapType.INDEX) & (
        Sitemap.discovery_method != DiscoveryMethod.SITEMAP_INDEX
    )
    scope = CursorScope("roots", (domain_id,))
    return await _nodes(
        session, scope, cursor, Sitemap.domain_id == domain_id, ~listed | is_entrance
    )


async def tree_children(
    session: AsyncSession, parent_id: UUID, *, cursor: str | None = None
) -> Page[TreeNode]:
    """The documents that an index lists."""
    children = select(SitemapLink.child_id).where(SitemapLink.parent_id == parent_id)
    return await _nodes(
        session, CursorScope("children", (parent_id,)), cursor, Sitemap.id.in_(children)
    )


async def _nodes(
    session: AsyncSession, scope: CursorScope, cursor: str | None, *wanted: ColumnElement[bool]
) -> Page[TreeNode]:
    after = scope.read(cursor, text_key)
    children = (
        select(func.count())
        .where(SitemapLink.parent_id == Sitemap.id)
        .correlate(Sitemap)
        .scalar_subquery()
    )
    statement = (
        select(
            Sitemap.id,
            Sitemap.url,
            Sitemap.type,
            Sitemap.status,
            Sitemap.discovery_method,
            Sitemap.url_count,
            Sitemap.missing_count,
            Sitemap.wire_bytes,
            Sitemap.lastmod,
            Sitemap.http_status,
            Sitemap.error_code,
            Sitemap.gone_at,
            children,
        )
        .where(*wanted)
        .order_by(Sitemap.url)
    )
    if after is not None:
        statement = statement.where(Sitemap.url > after)
    return await read_page(
        session, statement, page_size(100), TreeNode, lambda row: scope.write(row.url)
    )


@dataclass(frozen=True, slots=True)
class DocumentRead:
    """One document in one scan of its site."""

    sitemap_id: UUID
    scan_id: int
    state: SitemapScanState
    http_status: int | None
    error_code: str | None
    url_count: int
    wire_bytes: int
    seconds: float
    finished_at: datetime | None
    url: str


async def recent_reads(
    session: AsyncSession, sitemap_ids: Sequence[UUID], count: int = 20
) -> dict[UUID, list[DocumentRead]]:
    """The last reads of each of these documents, the oldest first."""
    if not sitemap_ids:
        return {}
    given = literal(list(sitemap_ids), ARRAY(Uuid()))
    documents = select(Sitemap.id, Sitemap.url).where(Sitemap.id == any_(given)).subquery()
    latest = (
        select_view(DocumentRead, SitemapScan, url=documents.c.url)
        .where(
            SitemapScan.sitemap_id == documents.c.id,
            SitemapScan.state != SitemapScanState.PENDING,
        )
        .order_by(SitemapScan.scan_id.desc())
        .limit(count)
        .lateral("latest")
    )
    statement = (
        select(*latest.c).select_from(documents.join(latest, true())).order_by(latest.c.scan_id)
    )
    found: dict[UUID, list[DocumentRead]] = {sitemap_id: [] for sitemap_id in sitemap_ids}
    for row in await session.execute(statement):
        read = DocumentRead(*row)
        found[read.sitemap_id].append(read)
    return found


def url_counts(reads: Sequence[DocumentRead]) -> list[int]:
    """How many URLs the document listed after each of these reads, as far as they tell.

    An unchanged document was not read, and has as many as before; a failed read tells nothing.
    """
    counts: list[int] = []
    for read in reads:
        if read.state is SitemapScanState.COMPLETE:
            counts.append(read.url_count)
        elif read.state is SitemapScanState.UNCHANGED and counts:
            counts.append(counts[-1])
    return counts
