"""The state of the change feed in a few numbers, for metrics."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.feed_positions import read_head
from siteatlas.storage.models import Domain


@dataclass(frozen=True, slots=True)
class FeedLoad:
    """The range of the feed, and the removals that wait for a proof."""

    head: int
    retained_from: int
    domains_held: int
    urls_held: int


async def feed_load(session: AsyncSession) -> FeedLoad:
    """The state of the feed at this moment; sites without held removals are not read."""
    head = await read_head(session)
    held = select(func.count(), func.coalesce(func.sum(Domain.missing_count), 0)).where(
        Domain.removals_held_since.is_not(None), Domain.deleted_at.is_(None)
    )
    domains, urls = (await session.execute(held)).one()
    return FeedLoad(head.seq, head.retained_from, domains, int(urls))
