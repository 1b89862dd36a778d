"""Requests and responses about webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from siteatlas.api.schemas.base import Moment, QueryShape, RequestShape, examples
from siteatlas.catalog.views import MAX_ADDRESS_CHARS, MAX_BIGINT, Example, Line, View
from siteatlas.catalog.webhooks import FEED_TYPES, MAX_DOMAINS, WebhookView
from siteatlas.notify.endpoints import MAX_DESCRIPTION_CHARS

RECEIVER = "https://hooks.example.com/siteatlas"

ReceiverUrl = Annotated[str, Field(min_length=1, max_length=MAX_ADDRESS_CHARS)]
SiteName = Annotated[str, Field(min_length=1, max_length=MAX_ADDRESS_CHARS)]
TypeWord = Annotated[
    str, Field(max_length=64, pattern=f"^({'|'.join(FEED_TYPES)})$".replace(".", r"\."))
]
TypeList = Annotated[list[TypeWord], Field(min_length=1, max_length=len(FEED_TYPES))]
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


@dataclass(frozen=True)
class SecretAnswer(View):
    """A new secret, which cannot be shown again."""

    secret: Annotated[
        Line,
        Example("whsec_…"),
        Field(
            description="The secret that messages are signed with. Store it now: it is not shown "
            "again."
        ),
    ]


@dataclass(frozen=True)
class WebhookCreated(WebhookView, SecretAnswer):
    """A new webhook with its secret."""


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
