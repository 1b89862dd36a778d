"""Read statements for the audit trail."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.page_reading import read_page
from siteatlas.insights.pages import CursorScope, Page, bigint_key, page_size
from siteatlas.insights.views import select_view
from siteatlas.storage.models import AuditEvent


@dataclass(frozen=True, slots=True)
class AuditEventView:
    """One event of the audit trail."""

    id: int
    created_at: datetime
    user_id: UUID | None
    user_name: str | None
    key_id: str | None
    address: str | None
    action: str
    target: str | None
    status: int
    error_code: str | None
    request_id: str | None


async def list_audit_events(
    session: AsyncSession,
    *,
    user: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[AuditEventView]:
    """Events, newest first; `user` is a user's name."""
    scope = CursorScope("audit", (user,))
    before = scope.read(cursor, bigint_key)
    statement = select_view(AuditEventView, AuditEvent).order_by(AuditEvent.id.desc())
    if user is not None:
        statement = statement.where(AuditEvent.user_name == user)
    if before is not None:
        statement = statement.where(AuditEvent.id < before)
    return await read_page(
        session, statement, page_size(limit), AuditEventView, lambda row: scope.write(row.id)
    )
