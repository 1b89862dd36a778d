"""Write statements on the audit trail: add and prune. The caller owns the transaction."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from siteatlas.storage.models import AuditEvent

PRUNED_PER_CALL = 5000


async def insert_audit_event(session: AsyncSession | AsyncConnection, **values: Any) -> None:
    """Add one event."""
    await session.execute(insert(AuditEvent).values(**values))


async def prune_audit_events(session: AsyncSession, *, days: float) -> int:
    """Delete events that are older than the retention."""
    old = (
        select(AuditEvent.id)
        .where(AuditEvent.created_at < func.now() - timedelta(days=days))
        .limit(PRUNED_PER_CALL)
    )
    statement = delete(AuditEvent).where(AuditEvent.id.in_(old))
    return len((await session.execute(statement.returning(AuditEvent.id))).all())
