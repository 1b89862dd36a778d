"""Counts the pending jobs of a user, and locks them for transactions that add to them."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.queue.fair_order import is_pending, queue_literal
from siteatlas.queue.new_job import Priority
from siteatlas.storage.autocommit import Reader
from siteatlas.storage.models import Job

LOCK_NAME = "waiting jobs"


async def count_pending(session: Reader, user_id: UUID, enough: int) -> int:
    """The pending jobs of a user, counted no further than `enough`; read from `ix_jobs_fair`."""
    priorities = [queue_literal(int(priority)) for priority in Priority]
    some = (
        select(Job.id)
        .where(is_pending(Job), Job.priority.in_(priorities), Job.created_by == user_id)
        .limit(enough)
        .subquery()
    )
    return int(await session.scalar(select(func.count()).select_from(some)) or 0)


async def lock_pending(session: AsyncSession, user_id: UUID) -> None:
    """Serialize the transactions that count and add jobs of a user, until this one ends.

    To be taken before any row is locked, so that two transactions never wait for each other.
    """
    key = func.hashtextextended(f"{LOCK_NAME}:{user_id}", 0)
    await session.execute(select(func.pg_advisory_xact_lock(key)))
