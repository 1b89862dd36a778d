"""Requests and responses about the audit trail."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field

from siteatlas.api.schemas.base import (
    JOB_ID,
    NO_NUL,
    NOON,
    USER_ID,
    AnswerShape,
    Count,
    Example,
    Line,
    Name,
    QueryShape,
    SmallCount,
    Word,
)
from siteatlas.api.schemas.keys import KEY_ID


class AuditEventAnswer(AnswerShape):
    """Who did what, from where, with what result."""

    id: Annotated[Count, Example(7)]
    created_at: Annotated[datetime, Example(NOON)]
    user_id: Annotated[UUID | None, Example(USER_ID)]
    user_name: Annotated[Name | None, Example("ann")]
    key_id: Annotated[Word | None, Example(KEY_ID)]
    address: Annotated[Word | None, Example("192.0.2.7")]
    action: Annotated[Word, Example("scan_domain")]
    target: Annotated[Line | None, Example(f"/api/v3/sitemap/status/{JOB_ID}")]
    status: Annotated[SmallCount, Example(202)]
    error_code: Word | None
    request_id: Annotated[Word | None, Example("5f0c8d1e2a3b4c5d6e7f809112233445")]


class AuditQuery(QueryShape):
    """Which events to list."""

    user: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        pattern=NO_NUL,
        description="Only events of the user with this name.",
    )
