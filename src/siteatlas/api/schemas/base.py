"""What all requests share: strict shapes, and limits, which are enforced."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Self, TypedDict

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic.config import JsonDict

from siteatlas.catalog.paging import DEFAULT_LIMIT, MAX_CURSOR_CHARS, MAX_LIMIT
from siteatlas.catalog.views import MAX_INT
from siteatlas.settings import MAX_PAGES
from siteatlas.text import MAX_TAG_CHARS, TAG_PATTERN, parse_tag

# PostgreSQL stores no NUL in text or JSON.
NO_NUL = r"^[^\x00]*$"
NUMBER = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?", re.IGNORECASE)


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


class PageWanted(TypedDict):
    """Which page of a list to read."""

    limit: int
    cursor: str | None


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

    @property
    def page(self) -> PageWanted:
        """Which page of the list, as its function in the catalog takes it."""
        return {"limit": self.limit, "cursor": self.cursor}


class TagFilter(BaseModel):
    """A filter of a list over several sites."""

    tag: Tag | None = Field(None, description="Only of sites that have this tag.")

    @property
    def wanted_tag(self) -> str | None:
        """The tag to filter by, as it is stored."""
        return None if self.tag is None else parse_tag(self.tag)
