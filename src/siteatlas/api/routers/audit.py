"""The audit trail: who did what."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from siteatlas.access.marks import ADMIN
from siteatlas.api.openapi import problems
from siteatlas.api.schemas.audit import AuditEventAnswer, AuditQuery
from siteatlas.api.schemas.base import PageAnswer
from siteatlas.api.sessions import ReadSession
from siteatlas.insights.audit import AuditEventView, list_audit_events
from siteatlas.insights.pages import Page

router = APIRouter(prefix="/api/v3/audit", tags=["access"])


@router.get(
    "",
    dependencies=[ADMIN],
    summary="Read the audit trail",
    response_model=PageAnswer[AuditEventAnswer],
    responses=problems(),
)
async def get_audit_events(
    query: Annotated[AuditQuery, Query()], session: ReadSession
) -> Page[AuditEventView]:
    """Requests that changed something, or tried to, and refused keys; newest first."""
    return await list_audit_events(session, user=query.user, limit=query.limit, cursor=query.cursor)
