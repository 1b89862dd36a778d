"""Whether any pending job is due."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Uuid, all_, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.queue.fair_order import pending_lines, queue_literal


def _due_line() -> Any:
    """A line of pending jobs whose first job is due, except those of users at their limit."""
    lines = pending_lines()
    full = bindparam("users_at_limit", type_=ARRAY(Uuid()))
    is_due = lines.c.run_at <= func.now()
    due = select(lines.c.run_at).where(is_due, lines.c.created_by != all_(full))
    return due.limit(queue_literal(1))


DUE_LINE = _due_line()


async def has_due_jobs(session: AsyncSession, *, users_at_limit: Collection[UUID] = ()) -> bool:
    """Whether a pending job is due, not counting the jobs of these users."""
    values = {"users_at_limit": list(users_at_limit)}
    return await session.scalar(DUE_LINE, values) is not None
