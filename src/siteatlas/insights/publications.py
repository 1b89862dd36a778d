"""Publications, newest first: each number of the change feed with its counts, and its events.

The feed itself is read forwards (`changes.py`); people look at what is newest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from sqlalchemy import (
    Select,
    Text,
    cast,
    func,
    literal,
    null,
    or_,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import NotFoundError
from siteatlas.insights.change_views import FeedPage
from siteatlas.insights.changes import read_changes
from siteatlas.insights.feed_positions import FeedPosition, read_head
from siteatlas.insights.feed_windows import FeedFilter
from siteatlas.insights.newest_numbers import (
    has_counted,
    has_events,
    newest,
    newest_unexamined_number,
)
from siteatlas.insights.page_reading import read_page
from siteatlas.insights.pages import CursorScope, Page, bigint_key, page_size
from siteatlas.storage.models import Domain, FeedEvent, Scan
from siteatlas.storage.tables import SCANS


@dataclass(frozen=True, slots=True)
class PublicationView:
    """One number of the feed: a published or failed scan, or a site that was removed."""

    seq: int
    domain: str
    state: str
    partial: bool
    at: datetime
    scan_id: int | None
    url_count: int | None
    change_counts: dict[str, int] | None


async def list_publications(
    session: AsyncSession,
    *,
    domain_id: UUID | None = None,
    kinds: frozenset[str] = frozenset(),
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[PublicationView]:
    """Publications, newest first; with `kinds`, those that have an event of one of them.

    For a page with `kinds`, a bounded number of scans is looked at: it may be empty though more
    follows.
    """
    scope = CursorScope("publications", (domain_id, tuple(sorted(kinds))))
    before = scope.read(cursor, bigint_key)
    rest = await session.scalar(newest_unexamined_number(domain_id, before)) if kinds else None
    scans = _published_scans(domain_id, kinds, before, rest)
    statement: Select[*tuple[object, ...]] = scans
    if not kinds and domain_id is None:
        parts = (newest(part, page_size(limit) + 1) for part in (scans, _removed_sites(before)))
        both = union_all(*parts).subquery("both")
        statement = select(*both.c)
    statement = statement.order_by(statement.selected_columns["seq"].desc())
    page = await read_page(
        session, statement, page_size(limit), PublicationView, lambda row: scope.write(row.seq)
    )
    if rest is None or page.next_cursor is not None:
        return page
    return replace(page, next_cursor=scope.write(rest + 1))


def _published_scans(
    domain_id: UUID | None, kinds: frozenset[str], before: int | None, after: int | None
) -> Select[*tuple[object, ...]]:
    """Scans that have a number before one and after another."""
    statement = (
        select(
            Scan.published_seq.label("seq"),
            Domain.domain,
            cast(Scan.state, Text).label("state"),
            Scan.partial,
            func.coalesce(Scan.finished_at, Scan.started_at).label("at"),
            Scan.id.label("scan_id"),
            Scan.url_count,
            Scan.change_counts,
        )
        .join(Domain, Domain.id == Scan.domain_id)
        .where(Scan.published_seq.is_not(None), Domain.deleted_at.is_(None))
    )
    if domain_id is not None:
        statement = statement.where(Scan.domain_id == domain_id)
    if kinds:
        counted = has_counted(SCANS.c.change_counts, kinds)
        statement = statement.where(or_(counted, has_events(SCANS.c.id, kinds)))
    if after is not None:
        statement = statement.where(Scan.published_seq > after)
    return statement if before is None else statement.where(Scan.published_seq < before)


def _removed_sites(before: int | None) -> Select[*tuple[object, ...]]:
    """Events with a number of their own."""
    statement = select(
        FeedEvent.seq.label("seq"),
        FeedEvent.domain,
        cast(FeedEvent.kind, Text).label("state"),
        literal(value=False).label("partial"),
        FeedEvent.created_at.label("at"),
        cast(null(), Scan.id.type).label("scan_id"),
        cast(null(), Scan.url_count.type).label("url_count"),
        null().cast(JSONB).label("change_counts"),
    ).where(FeedEvent.seq.is_not(None))
    return statement if before is None else statement.where(FeedEvent.seq < before)


async def read_publication(session: AsyncSession, seq: int, limit: int) -> FeedPage:
    """The first events of one number; NotFoundError if it does not exist or is not retained."""
    head = await read_head(session)
    if not head.retained_from < seq <= head.seq:
        raise NotFoundError
    return await read_changes(
        session, FeedFilter(), replace(head, seq=seq), FeedPosition(seq - 1), limit
    )
