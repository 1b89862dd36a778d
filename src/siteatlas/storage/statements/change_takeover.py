"""Taking over the changes of scans that ended without being published.

The next scan of the site that is published reports them under its own number, merged with its own:
of two changes of an entry the state before the first and the state after the last count. A move is
first split into an arrival and a departure: by the time of the next scan, the URL may have moved
back or on, and moves are judged again for the whole site.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Select,
    bindparam,
    delete,
    func,
    literal,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import ChangeKind, RemovalEvidence
from siteatlas.storage.statements.url_changes import insert_departures, merged_earlier_changes
from siteatlas.storage.tables import FEED_EVENTS, SCANS, URL_CHANGES

CHANGES_PER_BATCH = 5_000
# Scans of a site do not overlap, so older ones have been taken over. A day for a clock set back.
CLOCK_TOLERANCE = timedelta(days=1)
_NEW = bindparam("new_scan", type_=BigInteger())
_OLD = bindparam("old_scan", type_=BigInteger())


def leftover_scans(domain_id: Any, scan_id: Any) -> Select[Any]:
    """The ids of other scans of a site that left changes or events untold, the latest first.

    A site has one active job at a time, so none of them is still at work.
    """
    published = SCANS.alias("published")
    last = (
        select(func.max(published.c.finished_at))
        .where(published.c.domain_id == domain_id, published.c.published_seq.is_not(None))
        .scalar_subquery()
    )
    return (
        select(SCANS.c.id)
        .where(
            SCANS.c.domain_id == domain_id,
            SCANS.c.id != scan_id,
            SCANS.c.published_seq.is_(None),
            or_(
                last.is_(None),
                SCANS.c.finished_at.is_(None),
                SCANS.c.finished_at > last - CLOCK_TOLERANCE,
            ),
            or_(
                select(URL_CHANGES.c.scan_id).where(URL_CHANGES.c.scan_id == SCANS.c.id).exists(),
                select(FEED_EVENTS.c.id)
                .where(FEED_EVENTS.c.scan_id == SCANS.c.id, FEED_EVENTS.c.seq.is_(None))
                .exists(),
            ),
        )
        .order_by(SCANS.c.finished_at.desc().nulls_first(), SCANS.c.id.desc())
    )


def _splitting_moves() -> Any:
    """Turn a batch of moves of a scan into arrivals, and departures from the previous documents."""
    keys = (URL_CHANGES.c.scan_id, URL_CHANGES.c.sitemap_id, URL_CHANGES.c.url_hash)
    moves = (
        select(URL_CHANGES)
        .where(URL_CHANGES.c.scan_id == _OLD, URL_CHANGES.c.kind == ChangeKind.MOVED)
        .limit(CHANGES_PER_BATCH)
        .cte("moves")
    )
    arrivals = (
        update(URL_CHANGES)
        .where(*(key == moves.c[key.name] for key in keys))
        .values(kind=ChangeKind.ADDED, previous_sitemap_id=None, before=null())
        .cte("arrivals")
    )
    evidence = literal(RemovalEvidence.COMPLETE, URL_CHANGES.c.evidence.type)
    return insert_departures(moves, evidence).add_cte(arrivals).returning(literal(1))


def _taking_over() -> Any:
    """Move a batch of changes to another scan; its own changes are later ones."""
    keys = (URL_CHANGES.c.scan_id, URL_CHANGES.c.sitemap_id, URL_CHANGES.c.url_hash)
    batch = select(*keys).where(URL_CHANGES.c.scan_id == _OLD).limit(CHANGES_PER_BATCH).cte("batch")
    taken = (
        delete(URL_CHANGES)
        .where(*(key == batch.c[key.name] for key in keys))
        .returning(*URL_CHANGES.c)
        .cte("taken")
    )
    others = [column for column in taken.c if column.name != "scan_id"]
    rows = select(_NEW.label("scan_id"), *others).order_by(taken.c.sitemap_id, taken.c.url_hash)
    added = insert(URL_CHANGES).from_select(["scan_id", *(c.name for c in others)], rows)
    return merged_earlier_changes(added).returning(literal(1))


SPLIT_MOVES = _splitting_moves()
TAKE_OVER = _taking_over()
LEFTOVERS = leftover_scans(bindparam("of_domain", type_=SCANS.c.domain_id.type), _NEW)
TAKE_OVER_EVENTS = (
    update(FEED_EVENTS)
    .where(FEED_EVENTS.c.scan_id == _OLD, FEED_EVENTS.c.seq.is_(None))
    .values(scan_id=_NEW)
)


async def find_leftover_scans(
    session: AsyncSession, domain_id: UUID, *, new_scan: int
) -> list[int]:
    """The scans of a site whose changes a new one takes over, the latest first."""
    values = {"of_domain": domain_id, "new_scan": new_scan}
    return list((await session.scalars(LEFTOVERS, values)).all())


async def split_moves(session: AsyncSession, scan_id: int) -> bool:
    """Split a batch of the moves of an unpublished scan; False if there are none."""
    return bool((await session.execute(SPLIT_MOVES, {"old_scan": scan_id})).all())


async def take_over_changes(session: AsyncSession, old_scan: int, new_scan: int) -> bool:
    """Take over a batch of the changes of a scan; False if that was the last one.

    Its events come with the first batch.
    """
    values = {"old_scan": old_scan, "new_scan": new_scan}
    if await split_moves(session, old_scan):
        return True
    await session.execute(TAKE_OVER_EVENTS, values)
    taken = (await session.execute(TAKE_OVER, values)).all()
    return len(taken) == CHANGES_PER_BATCH
