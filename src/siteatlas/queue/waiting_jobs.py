"""How many jobs of a user are waiting."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import func, select

from siteatlas.queue.fair_order import is_pending, queue_literal
from siteatlas.queue.new_job import Priority
from siteatlas.storage.autocommit import Reader
from siteatlas.storage.models import Job


async def count_waiting(session: Reader, user_id: UUID, enough: int) -> int:
    """The pending jobs of a user, counted no further than `enough`; read from `ix_jobs_fair`."""
    priorities = [queue_literal(int(priority)) for priority in Priority]
    some = (
        select(Job.id)
        .where(is_pending(Job), Job.priority.in_(priorities), Job.created_by == user_id)
        .limit(enough)
        .subquery()
    )
    return int(await session.scalar(select(func.count()).select_from(some)) or 0)
