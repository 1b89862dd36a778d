"""Read statements for the newest events of the change feed, newest publication first.

For readers that want to see what happened last, not to follow the feed; those read `changes.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Select,
    Subquery,
    and_,
    false,
    func,
    or_,
    select,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.change_views import ChangeView
from siteatlas.insights.changes import PageInProgress
from siteatlas.insights.feed_positions import FeedHeadView, FeedPosition
from siteatlas.insights.feed_windows import FeedFilter
from siteatlas.insights.newest_numbers import (
    MAX_SCANS,
    has_counted,
    has_events,
    newest,
    of_kinds,
)
from siteatlas.insights.tagged_domains import tagged_domains
from siteatlas.storage.tables import DOMAINS, FEED_EVENTS, SCANS, URL_CHANGES

MAX_LATEST = 100
# Rows of all numbers together: a scan may have many changes and few of the kinds.
MAX_EXAMINED = 50_000
_ENDED = func.coalesce(SCANS.c.finished_at, SCANS.c.started_at).label("published_at")


@dataclass(frozen=True, slots=True)
class PublishedEvent:
    """An event, and when it was published."""

    event: ChangeView
    published_at: datetime


@dataclass(frozen=True, slots=True)
class LatestChanges:
    """The newest events. `is_complete`: they are as many as asked for, or all that there are.

    Otherwise reading ended at a bound before, and there may be others, also between these.
    """

    events: list[PublishedEvent]
    is_complete: bool


async def latest_changes(
    session: AsyncSession, wanted: FeedFilter, head: FeedHeadView, limit: int = MAX_LATEST
) -> LatestChanges:
    """The newest events up to a head that was read before, in the same snapshot."""
    numbers = (await session.execute(_newest_numbers(wanted, head, limit))).all()
    page, times = PageInProgress(wanted, limit, MAX_EXAMINED), dict[int, datetime]()
    all_read = len(numbers) < limit
    for seq, published_at in numbers:
        end = await page.fill(session, replace(head, seq=seq), FeedPosition(seq - 1))
        times[seq] = published_at
        if end.done < seq:
            all_read = False
            break
    events = [PublishedEvent(event, times[event.seq]) for event in page.items]
    is_full = len(events) == limit
    if not is_full and not all_read:
        return LatestChanges(events, is_complete=False)
    start = events[-1].event.seq if is_full else head.retained_from
    is_cut = await _has_unexamined_scans(session, wanted, replace(head, retained_from=start))
    return LatestChanges(events, is_complete=not is_cut)


async def _has_unexamined_scans(
    session: AsyncSession, wanted: FeedFilter, head: FeedHeadView
) -> bool:
    """Whether more scans than are examined were published up to the head."""
    # Each scan has its own number, so that most feeds need no statement.
    if head.seq - head.retained_from <= MAX_SCANS:
        return False
    unexamined = _newest_scans(wanted, head).offset(MAX_SCANS).limit(1)
    return (await session.execute(unexamined)).first() is not None


def _newest_numbers(wanted: FeedFilter, head: FeedHeadView, limit: int) -> Select[Any]:
    """The newest numbers that have events of the kinds, with the time of their publication."""
    both = [
        newest(_scans_with_events(wanted, head), limit),
        newest(_numbered_events(wanted, head), limit),
    ]
    return newest(union_all(*both), limit)


def _scans_with_events(wanted: FeedFilter, head: FeedHeadView) -> Select[Any]:
    """The numbers of scans with events of the kinds, among the newest scans."""
    scans = _newest_scans(wanted, head).limit(MAX_SCANS).subquery("scans")
    return select(scans.c.published_seq.label("seq"), scans.c.published_at).where(
        or_(_has_urls(scans, wanted), has_events(scans.c.id, wanted.kinds))
    )


def _newest_scans(wanted: FeedFilter, head: FeedHeadView) -> Select[Any]:
    """The published scans of the sites, newest first, with events of the kinds or without."""
    recent = select(SCANS.c.id, SCANS.c.published_seq, SCANS.c.change_counts, _ENDED).where(
        SCANS.c.published_seq > head.retained_from, SCANS.c.published_seq <= head.seq
    )
    stored = recent.join(DOMAINS, DOMAINS.c.id == SCANS.c.domain_id)
    stored = stored.where(DOMAINS.c.deleted_at.is_(None))
    ordered = stored.order_by(SCANS.c.published_seq.desc())
    return _of_sites(ordered, SCANS.c.domain_id, wanted)


def _has_urls(scans: Subquery, wanted: FeedFilter) -> ColumnElement[bool]:
    """SQL condition: a scan has changes of URLs, of the kinds if it counted its changes."""
    if not wanted.shows_urls:
        return false()
    some = select(URL_CHANGES.c.scan_id).where(URL_CHANGES.c.scan_id == scans.c.id).exists()
    if wanted.kinds is None:
        return some
    counts = scans.c.change_counts
    return and_(or_(counts.is_(None), has_counted(counts, wanted.kinds)), some)


def _numbered_events(wanted: FeedFilter, head: FeedHeadView) -> Select[Any]:
    """The events of the kinds that have a number of their own."""
    columns = FEED_EVENTS.c
    own = select(columns.seq, columns.created_at.label("published_at")).where(
        columns.seq > head.retained_from, columns.seq <= head.seq
    )
    return _of_sites(of_kinds(own, wanted.kinds), columns.domain_id, wanted)


def _of_sites(rows: Select[Any], domain_id: ColumnElement[UUID], wanted: FeedFilter) -> Select[Any]:
    """Only the rows of the site, or of the sites that have the tag."""
    if wanted.domain_id is not None:
        rows = rows.where(domain_id == wanted.domain_id)
    return rows if wanted.tag is None else rows.where(domain_id.in_(tagged_domains(wanted.tag)))
