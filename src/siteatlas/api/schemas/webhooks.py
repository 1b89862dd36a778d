"""Requests and responses about webhooks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, model_validator

from siteatlas.api.schemas.base import (
    MAX_ADDRESS_CHARS,
    AnswerShape,
    Count,
    Example,
    Line,
    Moment,
    Name,
    QueryShape,
    RequestShape,
    Seconds,
    Shown,
    SmallCount,
    Url,
    Word,
    declared,
    examples,
    one_of,
)
from siteatlas.catalog.paging import MAX_BIGINT
from siteatlas.catalog.webhooks import STATUSES
from siteatlas.notify.endpoints import FEED_TYPES, MAX_DESCRIPTION_CHARS, MAX_DOMAINS
from siteatlas.storage.models import DisabledReason, MessageType

RECEIVER = "https://hooks.example.com/siteatlas"
TYPES = [kind.value for kind in FEED_TYPES]

ReceiverUrl = Annotated[str, Field(min_length=1, max_length=MAX_ADDRESS_CHARS)]
SiteName = Annotated[str, Field(min_length=1, max_length=MAX_ADDRESS_CHARS)]
TypeWord = Annotated[
    str, Field(max_length=64, pattern=f"^({'|'.join(TYPES)})$".replace(".", r"\."))
]
TypeList = Annotated[list[TypeWord], Field(min_length=1, max_length=len(TYPES))]
SiteList = Annotated[list[SiteName], Field(min_length=1, max_length=MAX_DOMAINS)]
Description = Annotated[
    str, Field(max_length=MAX_DESCRIPTION_CHARS, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")
]


class WebhookCreation(RequestShape):
    """The receiver of a new webhook, and which messages it gets."""

    model_config = ConfigDict(
        json_schema_extra=examples({"url": RECEIVER, "types": ["scan.published"]})
    )

    url: ReceiverUrl = Field(description="Address that messages are sent to by POST.")
    types: TypeList | None = Field(
        None, description="Only messages of these types. Null for all types."
    )
    domains: SiteList | None = Field(
        None, description="Only about these sites; null for all. A site may be added later."
    )
    description: Description = Field("", description="What the webhook is for.")


class WebhookChange(RequestShape):
    """What to change of a webhook; fields that are not given stay as they are."""

    model_config = ConfigDict(json_schema_extra=examples({"enabled": True}))

    url: ReceiverUrl | None = Field(None, description="Address that messages are sent to by POST.")
    types: TypeList | None = Field(None, description="Only messages of these types.")
    domains: SiteList | None = Field(
        None, description="Only about these sites; null for all. A site may be added later."
    )
    description: Description | None = Field(None, description="What the webhook is for.")
    enabled: bool | None = Field(
        None, description="False stops deliveries; true continues them where they stopped."
    )

    @model_validator(mode="after")
    def _check_nulls(self) -> Self:
        """Only `domains` can be set to null, which means all sites."""
        for name in self.model_fields_set - {"domains"}:
            if getattr(self, name) is None:
                raise ValueError(f"{name} cannot be null")
        return self

    def changes(self) -> dict[str, Any]:
        """The fields that were given, with their values."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class WebhookAnswer(AnswerShape):
    """A webhook; never its secret."""

    id: Annotated[UUID, Example(Shown.webhook_id)]
    url: Annotated[Url, Example(RECEIVER)]
    description: Annotated[Line, Example("search index")]
    types: Annotated[
        list[Annotated[str, one_of(TYPES)]],
        declared(maxItems=len(TYPES)),
        Example(["scan.published"]),
    ]
    domains: Annotated[list[Name], declared(maxItems=MAX_DOMAINS)] | None = Field(
        description="Only about these sites; null for all."
    )
    status: Annotated[str, one_of(STATUSES), Example("active")]
    disabled_reason: Annotated[str, one_of(DisabledReason)] | None = Field(
        description="`failing`: all attempts at a message failed, for three days. `gone`: the "
        "receiver answered 410. `requested`: a user disabled it."
    )
    delivered_seq: Annotated[Count, Example(7)] = Field(
        description="All messages about numbers of the change feed up to this one are delivered."
    )
    head_seq: Annotated[Count, Example(7)] = Field(
        description="The last number of the change feed."
    )
    failures: Annotated[SmallCount, Example(0)] = Field(
        description="Failed attempts at the next message."
    )
    failing_since: datetime | None
    next_attempt_at: datetime | None
    last_attempt_at: Annotated[datetime | None, Example(Shown.later)]
    last_delivered_at: Annotated[datetime | None, Example(Shown.later)]
    disabled_at: datetime | None
    previous_secret_until: datetime | None = Field(
        description="Until then messages are also signed with the secret before the last rotation."
    )
    created_by: Annotated[UUID, Example(Shown.user_id)]
    created_at: Annotated[datetime, Example(Shown.noon)]


class SecretAnswer(AnswerShape):
    """A new secret, which cannot be shown again."""

    secret: Annotated[Line, Example("whsec_…")] = Field(
        description="The secret that messages are signed with. Store it now: it is not shown again."
    )


class WebhookCreated(WebhookAnswer, SecretAnswer):
    """A new webhook with its secret."""


class SentMessage(AnswerShape):
    """How the receiver answered a test message."""

    message_id: Annotated[Word, Example("msg_2f1c9d0b7a6e4c3d8b5a1e0f9c7d6b5a")]
    delivered: Annotated[bool, Example(True)]
    http_status: Annotated[SmallCount | None, Example(204)]
    error_code: Word | None
    seconds: Annotated[Seconds, Example(0.05)]


class DeliveryAnswer(SentMessage):
    """One attempt to deliver a message."""

    id: Annotated[Count, Example(1)]
    type: Annotated[str, one_of(MessageType), Example("scan.published")]
    seq: Annotated[Count | None, Example(7)] = Field(description="Number of the change feed.")
    domain: Annotated[Name | None, Example("example.com")]
    attempt: Annotated[SmallCount, Example(1)] = Field(
        description="1 for the first attempt at this message."
    )
    created_at: Annotated[datetime, Example(Shown.noon)]


class WebhooksQuery(QueryShape):
    """The page of a list of webhooks."""


class DeliveriesQuery(QueryShape):
    """Which deliveries to show."""

    delivered: bool | None = Field(
        None, description="True: only delivered messages. False: only failed attempts."
    )


class ReplayQuery(BaseModel):
    """From where to deliver again: a number of the change feed, or a time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after_seq: int | None = Field(
        None,
        ge=0,
        le=MAX_BIGINT,
        description="Deliver all messages after this number again. Either this or `since`.",
    )
    since: Moment | None = Field(
        None, description="Deliver all messages about what was published since then again."
    )
