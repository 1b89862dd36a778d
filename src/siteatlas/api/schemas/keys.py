"""Requests and responses about access keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from siteatlas.access.keys import MAX_EXPIRY_DAYS, MAX_NAME_CHARS, Scope
from siteatlas.api.schemas.base import (
    NO_NUL,
    AnswerShape,
    Count,
    Example,
    Line,
    Name,
    QueryShape,
    RequestShape,
    Shown,
    SmallCount,
    Word,
    declared,
    examples,
    one_of,
)

RequestName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_NAME_CHARS,
        pattern=r"^[^\x00-\x1f\x7f-\x9f]*\S[^\x00-\x1f\x7f-\x9f]*$",
    ),
]


class KeyCreation(RequestShape):
    """The name, the scopes and the expiry of a new access key."""

    model_config = ConfigDict(
        json_schema_extra=examples(
            {"name": "nightly export", "scopes": ["read"], "expires_in_days": 90}
        )
    )

    name: RequestName = Field(description="What the key is for.")
    scopes: list[Literal["read", "scan", "admin"]] = Field(
        min_length=1,
        max_length=len(Scope),
        description="What the key allows; `admin` includes the others.",
    )
    user: RequestName | None = Field(
        None, description="The user on whose behalf it acts. Default: the user of the same name."
    )
    expires_in_days: float | None = Field(
        None, gt=0, le=MAX_EXPIRY_DAYS, description="Days until it expires. Default: never."
    )


class KeyAnswer(AnswerShape):
    """An access key, without its text."""

    id: Annotated[Word, Example(Shown.key_id)]
    name: Annotated[Name, Example("nightly export")]
    user: Annotated[Name, Example("nightly export")]
    scopes: Annotated[
        list[Annotated[str, one_of(Scope)]], declared(maxItems=len(Scope)), Example(["read"])
    ]
    status: Annotated[str, one_of(("active", "expired", "revoked")), Example("active")]
    created_at: Annotated[datetime, Example(Shown.noon)]
    expires_at: datetime | None
    last_used_at: Annotated[datetime | None, Example(Shown.later)]
    revoked_at: datetime | None


class KeyCreated(KeyAnswer):
    """A new access key with its text, which is not stored and cannot be shown again."""

    key: Annotated[Word, Example("sa_k3m9qa7d_…")] = Field(
        description="The text of the key. Store it now: it is not shown again."
    )


class KeysQuery(QueryShape):
    """The page of a list of keys."""


class AuditEventAnswer(AnswerShape):
    """Who did what, from where, with what result."""

    id: Annotated[Count, Example(7)]
    created_at: Annotated[datetime, Example(Shown.noon)]
    user_id: Annotated[UUID | None, Example(Shown.user_id)]
    user_name: Annotated[Name | None, Example("ann")]
    key_id: Annotated[Word | None, Example(Shown.key_id)]
    address: Annotated[Word | None, Example("192.0.2.7")]
    action: Annotated[Word, Example("scan_domain")]
    target: Annotated[Line | None, Example(f"/api/v3/sitemap/status/{Shown.job_id}")]
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
