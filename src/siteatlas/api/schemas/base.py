"""What all models share: strict requests, limits, and values for the examples.

The limits of requests are enforced. The limits of responses are only declared: a response must
never fail validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic.config import JsonDict

from siteatlas.catalog.paging import DEFAULT_LIMIT, MAX_BIGINT, MAX_CURSOR_CHARS, MAX_LIMIT
from siteatlas.scanner.events import SitemapType
from siteatlas.settings import MAX_PAGES
from siteatlas.storage.models import JobStatus
from siteatlas.text import MAX_TAG_CHARS, TAG_PATTERN, parse_tag

MAX_INT = 2**31 - 1
MAX_ADDRESS_CHARS = 2048
# PostgreSQL stores no NUL in text or JSON.
NO_NUL = r"^[^\x00]*$"
NUMBER = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?", re.IGNORECASE)

SITEMAP_COUNT = (
    "Number of documents that were read completely or in part, including indexes. Documents of "
    "which nothing could be read are not counted, but are listed as `failed`."
)


class Shown:
    """The ids and times that the examples of all answers share."""

    job_id = "0d4f5cbb-6c5c-4b8e-9c0f-5d6a4f3a2b11"
    domain_id = "7f1f7c4e-52a9-4a55-8a4e-0a3c1b7f9d20"
    sitemap_id = "3b9a8d52-1f64-4f0e-9d7c-6e2b8c1a4f35"
    batch_id = "c2a41e0b-9f1d-4c52-8f7b-2e6d5a8b9c03"
    user_id = "5905e9fe-6c61-4694-b09a-6602017b000a"
    key_id = "k3m9qa7d"
    webhook_id = "b7e0c3a4-5d18-4c0e-9a41-2f6f0d7c8e13"
    noon = "2025-11-15T12:00:00Z"
    later = "2025-11-15T12:00:04Z"


def declared(**bounds: Any) -> Any:
    """Bounds that appear in the schema and are not enforced."""
    return Field(json_schema_extra=bounds)


def one_of(words: Iterable[str]) -> Any:
    """The words of a closed set: generated clients get an enumeration of them."""
    return declared(enum=[str(word) for word in words])


@dataclass(frozen=True, slots=True)
class Example:
    """The value that a field has in the example of its answer."""

    value: Any


def response_example(model: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI example of a response model, from the examples of its fields.

    A field without a value is null if it is always there, and left out if it is not.
    """
    shown: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        values = [mark.value for mark in field.metadata if isinstance(mark, Example)]
        if values or field.is_required():
            shown[name] = values[0] if values else None
    return shown


def _add_response_example(schema: JsonDict, model: type[BaseModel]) -> None:
    example = response_example(model)
    if any(value is not None for value in example.values()):
        schema["examples"] = [example]


def list_pattern(words: Iterable[str]) -> str:
    """The pattern of some of these words, separated by commas."""
    one = "|".join(words)
    return f"^({one})(,({one}))*$"


def examples(*values: dict[str, Any]) -> JsonDict:
    """Examples of a whole shape."""
    return {"examples": list(values)}


def _with_time_zone(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _not_a_number(value: object) -> object:
    """Refuse seconds since 1970, which pydantic would take for a time."""
    if isinstance(value, (int, float)) or (
        isinstance(value, str) and NUMBER.fullmatch(value.strip())
    ):
        raise ValueError("not a date or time")
    return value


Address = Annotated[str, declared(minLength=1, maxLength=MAX_ADDRESS_CHARS)]
Word = Annotated[str, declared(maxLength=64)]
Line = Annotated[str, declared(maxLength=500)]
Name = Annotated[str, declared(maxLength=300)]
Url = Annotated[str, declared(maxLength=8192)]
Paragraph = Annotated[str, declared(maxLength=10_000)]
Count = Annotated[int, declared(minimum=0, maximum=MAX_BIGINT, format="int64")]
SmallCount = Annotated[int, declared(minimum=0, maximum=MAX_INT, format="int32")]
Seconds = Annotated[float, declared(minimum=0)]
Share = Annotated[float, declared(minimum=0, maximum=1)]
FreeObject = dict[str, Any]
JobStatusWord = Annotated[str, one_of(JobStatus)]
SitemapTypeWord = Annotated[str, one_of(SitemapType)]

Tag = Annotated[
    str, Field(min_length=1, max_length=MAX_TAG_CHARS, pattern=TAG_PATTERN, examples=["shop"])
]
MaxUrls = Annotated[int, Field(ge=1, le=MAX_PAGES)]
# Words are compared in lower case, as on the command line.
LOWERED = BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)
Moment = Annotated[datetime, BeforeValidator(_not_a_number), AfterValidator(_with_time_zone)]


class RequestShape(BaseModel):
    """A request body: exact types, no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class UrlLimitShape(RequestShape):
    """A request body with a limit, which may also have its former name."""

    max_urls: MaxUrls | None = Field(
        None,
        description="Maximum number of URLs that a scan stores. Default: the operator's limit.",
    )
    max_pages: MaxUrls | None = Field(
        None, description="Former name of `max_urls`.", json_schema_extra={"deprecated": True}
    )

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if len({self.max_urls, self.max_pages} - {None}) > 1:
            raise ValueError("max_pages is the former name of max_urls: give one of them")
        return self

    @property
    def url_limit(self) -> int | None:
        return self.max_pages if self.max_urls is None else self.max_urls


class QueryShape(BaseModel):
    """The query of a list: no unknown parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(
        DEFAULT_LIMIT,
        ge=1,
        le=MAX_INT,
        description=f"Maximum number of items per page; values above {MAX_LIMIT} are treated as "
        f"{MAX_LIMIT}. A page of large items ends earlier, at about 4 MiB.",
    )
    cursor: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_CURSOR_CHARS,
        description="`next_cursor` of the previous page, with the same filters.",
    )


class TagFilter(BaseModel):
    """A filter of a list over several sites."""

    tag: Tag | None = Field(None, description="Only of sites that have this tag.")

    @property
    def wanted_tag(self) -> str | None:
        """The tag to filter by, as it is stored."""
        return None if self.tag is None else parse_tag(self.tag)


class AnswerShape(BaseModel):
    """An answer, read from a view."""

    model_config = ConfigDict(
        from_attributes=True, frozen=True, json_schema_extra=_add_response_example
    )


ItemT = TypeVar("ItemT")


class PageAnswer(AnswerShape, Generic[ItemT]):
    """One page of a list."""

    items: Annotated[list[ItemT], declared(maxItems=MAX_LIMIT)]
    next_cursor: Annotated[str, declared(maxLength=MAX_CURSOR_CHARS)] | None = Field(
        description="Cursor of the next page; null on the last page."
    )
