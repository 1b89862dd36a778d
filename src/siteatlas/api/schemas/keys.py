"""Requests and responses about access keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from siteatlas.access.keys import MAX_EXPIRY_DAYS, MAX_NAME_CHARS, Scope
from siteatlas.api.schemas.base import NO_NUL, QueryShape, RequestShape, examples
from siteatlas.catalog.access import KeyView
from siteatlas.catalog.views import Example, Word

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


@dataclass(frozen=True, slots=True)
class KeyCreated(KeyView):
    """A new access key with its text, which is not stored and cannot be shown again."""

    key: Annotated[
        Word,
        Example("sa_k3m9qa7d_…"),
        Field(description="The text of the key. Store it now: it is not shown again."),
    ]


class AuditQuery(QueryShape):
    """Which events to list."""

    user: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        pattern=NO_NUL,
        description="Only events of the user with this name.",
    )
