"""Write statements on webhook endpoints: create, change, delete. The caller owns the transaction.

Every change takes a new fence, so that a process that is sending stops and another one continues
with the new values. What is sent is recorded by `webhook_deliveries.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import DisabledReason
from siteatlas.storage.tables import FEED_HEAD, WEBHOOK_ENDPOINTS

# The highest rank of a message within a number: all messages of the number are done.
LAST_RANK = 9
# What an endpoint has when no attempt at its next message has failed.
FRESH = {"failures": 0, "failing_since": None, "next_attempt_at": None}


async def insert_endpoint(
    session: AsyncSession,
    *,
    url: str,
    description: str,
    types: Sequence[str],
    domains: Sequence[str] | None,
    secret: str,
    created_by: UUID,
) -> UUID:
    """Store an endpoint whose position is the head of the feed; return its id."""
    statement = (
        insert(WEBHOOK_ENDPOINTS)
        .values(
            url=url,
            description=description,
            types=list(types),
            domains=None if domains is None else list(domains),
            secret=secret,
            created_by=created_by,
            position=select(FEED_HEAD.c.seq).scalar_subquery(),
            position_rank=LAST_RANK,
        )
        .returning(WEBHOOK_ENDPOINTS.c.id)
    )
    ident: UUID = (await session.execute(statement)).scalar_one()
    return ident


async def change_endpoint(session: AsyncSession, endpoint_id: UUID, **values: Any) -> bool:
    """Set columns of an endpoint and try its next message at once; False if there is none."""
    return await _update(session, endpoint_id, **FRESH, **values)


async def enable_endpoint(session: AsyncSession, endpoint_id: UUID) -> bool:
    """Deliver to an endpoint again, from its position."""
    return await _update(session, endpoint_id, **FRESH, disabled_at=None, disabled_reason=None)


async def disable_endpoint(session: AsyncSession, endpoint_id: UUID) -> bool:
    """Stop delivering to an endpoint; it keeps its position."""
    disabled_at = func.coalesce(WEBHOOK_ENDPOINTS.c.disabled_at, func.now())
    reason = DisabledReason.REQUESTED
    return await _update(session, endpoint_id, disabled_at=disabled_at, disabled_reason=reason)


async def move_endpoint(session: AsyncSession, endpoint_id: UUID, after_seq: int) -> bool:
    """Continue an endpoint behind a number of the feed."""
    return await _update(session, endpoint_id, **FRESH, position=after_seq, position_rank=LAST_RANK)


async def rotate_endpoint_secret(
    session: AsyncSession, endpoint_id: UUID, secret: str, *, overlap: timedelta
) -> bool:
    """Give an endpoint a new secret; messages are signed with the old one too for a while."""
    return await _update(
        session,
        endpoint_id,
        secret=secret,
        previous_secret=WEBHOOK_ENDPOINTS.c.secret,
        previous_secret_until=func.now() + overlap,
    )


async def delete_endpoint(session: AsyncSession, endpoint_id: UUID) -> bool:
    """Delete an endpoint with its deliveries; False if there is none with this id."""
    statement = delete(WEBHOOK_ENDPOINTS).where(WEBHOOK_ENDPOINTS.c.id == endpoint_id)
    found = await session.execute(statement.returning(WEBHOOK_ENDPOINTS.c.id))
    return found.scalar_one_or_none() is not None


async def _update(session: AsyncSession, endpoint_id: UUID, **values: Any) -> bool:
    """Set columns of an endpoint and take it from the worker that is sending to it."""
    statement = (
        update(WEBHOOK_ENDPOINTS)
        .where(WEBHOOK_ENDPOINTS.c.id == endpoint_id)
        .values(fence=WEBHOOK_ENDPOINTS.c.fence + 1, lease_until=None, **values)
        .returning(WEBHOOK_ENDPOINTS.c.id)
    )
    return (await session.execute(statement)).scalar_one_or_none() is not None
