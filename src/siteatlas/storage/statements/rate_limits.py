"""Rate limits that hold over all processes: one row per subject, one statement per request.

The generic cell rate algorithm: each request moves `paid_off_at` ahead by its cost, and is refused
if that is further ahead than the burst. Nothing has to be counted or reset.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Double, Select, Text, bindparam, delete, exists, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import RateLimit
from siteatlas.storage.statements.api_keys import seconds_interval

FORGOTTEN_SECONDS = 3600
PRUNED_PER_CALL = 1000


def _take_statement() -> Select[Any]:
    """Take one request out of a limit: whether it is admitted, and how far ahead the limit is."""
    subject = bindparam("of_subject", type_=Text())
    cost = seconds_interval(bindparam("cost_seconds", type_=Double()))
    burst = seconds_interval(bindparam("burst_seconds", type_=Double()))
    ahead = func.greatest(RateLimit.paid_off_at, func.now()) + cost
    row = insert(RateLimit).values(subject=subject, paid_off_at=func.now() + cost)
    taken = row.on_conflict_do_update(
        index_elements=[RateLimit.subject],
        set_={"paid_off_at": ahead},
        where=ahead <= func.now() + burst,
    ).returning(RateLimit.subject)
    admitted = exists(select(taken.cte("taken").c.subject))
    before = (
        select(func.extract("epoch", RateLimit.paid_off_at - func.now()))
        .where(RateLimit.subject == subject)
        .scalar_subquery()
    )
    return select(admitted.label("admitted"), before.label("ahead_seconds"))


TAKE = _take_statement()


def take_values(subject: str, per_minute: int) -> dict[str, Any]:
    """The parameters of `TAKE` for a limit of so many requests a minute, all at once or spread."""
    return {"of_subject": subject, "cost_seconds": 60.0 / per_minute, "burst_seconds": 60.0}


async def prune_rate_limits(session: AsyncSession) -> int:
    """Delete limits that are not used any more."""
    unused = (
        select(RateLimit.subject)
        .where(RateLimit.paid_off_at < func.now() - seconds_interval(FORGOTTEN_SECONDS))
        .limit(PRUNED_PER_CALL)
    )
    statement = delete(RateLimit).where(RateLimit.subject.in_(unused))
    return len((await session.execute(statement.returning(RateLimit.subject))).all())
