"""Read statements for the newest events of the change feed, newest publication first.

For readers that want to see what happened last, not to follow the feed; those read `changes.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, or_, select, union_all
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.change_views import ChangeView
from siteatlas.insights.changes import read_changes
from siteatlas.insights.feed_positions import FeedHeadView, FeedPosition
from siteatlas.insights.feed_windows import FeedFilter
from siteatlas.insights.tagged_domains import tagged_domains
from siteatlas.storage.tables import FEED_EVENTS, SCANS, URL_CHANGES

MAX_LATEST = 100
# Most scans of a site find nothing new; so many of them are looked at.
MAX_SCANS = 5_000
_ENDED = func.coalesce(SCANS.c.finished_at, SCANS.c.started_at).label("published_at")


@dataclass(frozen=True, slots=True)
class PublishedEvent:
    """An event, and when it was published."""

    event: ChangeView
    published_at: datetime


async def latest_changes(
    session: AsyncSession, wanted: FeedFilter, head: FeedHeadView, limit: int = MAX_LATEST
) -> list[PublishedEvent]:
    """The newest events up to a head that was read before, in the same snapshot."""
    found: list[PublishedEvent] = []
    for row in (await session.execute(_newest_numbers(wanted, head, limit))).all():
        page = await read_changes(
            session,
            wanted,
            replace(head, seq=row.number),
            FeedPosition(row.number - 1),
            limit - len(found),
        )
        found += (PublishedEvent(event, row.published_at) for event in page.items)
        if len(found) >= limit:
            break
    return found


def _newest_numbers(wanted: FeedFilter, head: FeedHeadView, limit: int) -> Select[Any]:
    """The newest numbers that have events, with the time of their publication."""
    newest = select(SCANS.c.id, SCANS.c.published_seq, _ENDED).where(
        SCANS.c.published_seq > head.retained_from, SCANS.c.published_seq <= head.seq
    )
    own = select(FEED_EVENTS.c.seq.label("number"), FEED_EVENTS.c.created_at.label("published_at"))
    own = own.where(FEED_EVENTS.c.seq > head.retained_from, FEED_EVENTS.c.seq <= head.seq)
    if wanted.domain_id is not None:
        newest = newest.where(SCANS.c.domain_id == wanted.domain_id)
        own = own.where(FEED_EVENTS.c.domain_id == wanted.domain_id)
    if wanted.tag is not None:
        newest = newest.where(SCANS.c.domain_id.in_(tagged_domains(wanted.tag)))
        own = own.where(FEED_EVENTS.c.domain_id.in_(tagged_domains(wanted.tag)))
    scans = newest.order_by(SCANS.c.published_seq.desc()).limit(MAX_SCANS).subquery("scans")
    has_events = or_(
        select(URL_CHANGES.c.scan_id).where(URL_CHANGES.c.scan_id == scans.c.id).exists(),
        select(FEED_EVENTS.c.id).where(FEED_EVENTS.c.scan_id == scans.c.id).exists(),
    )
    of_scans = (
        select(scans.c.published_seq.label("number"), scans.c.published_at)
        .where(has_events)
        .order_by(scans.c.published_seq.desc())
        .limit(limit)
    )
    of_events = own.order_by(FEED_EVENTS.c.seq.desc()).limit(limit)
    together = union_all(
        select(of_scans.subquery("of_scans")), select(of_events.subquery("of_events"))
    ).subquery("numbers")
    return select(together).order_by(together.c.number.desc()).limit(limit)
