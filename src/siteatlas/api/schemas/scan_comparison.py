"""Models of the comparison of two scans."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import Field

from siteatlas.api.schemas.base import (
    SITEMAP_ID,
    AnswerShape,
    Count,
    Example,
    FreeObject,
    PageAnswer,
    QueryShape,
    SmallCount,
    Url,
    Word,
    declared,
    one_of,
)
from siteatlas.insights.pages import MAX_BIGINT
from siteatlas.storage.models import ChangeKind


class CompareQuery(QueryShape):
    """Which scans to compare."""

    from_scan: int = Field(
        alias="from", ge=1, le=MAX_BIGINT, description="The id of the earlier scan."
    )
    to_scan: int = Field(alias="to", ge=1, le=MAX_BIGINT, description="The id of the later scan.")


class ComparedEntryAnswer(AnswerShape):
    """How one entry differs between two scans."""

    kind: Annotated[str, one_of(ChangeKind), Example("changed")] = Field(
        description="As in the change feed."
    )
    url: Annotated[Url, Example("https://example.com/about")]
    sitemap: Annotated[Url, Example("https://example.com/sitemap.xml")]
    sitemap_id: Annotated[UUID, Example(SITEMAP_ID)]
    previous_sitemap: Url | None = Field(description="Where a URL that moved was listed.")
    previous_sitemap_id: UUID | None
    before: Annotated[FreeObject | None, Example({"changefreq": "daily"})] = Field(
        description="What was listed; null if the URL was not listed."
    )
    after: Annotated[FreeObject | None, Example({"changefreq": "weekly"})] = Field(
        description="What is listed after the later scan; null if the URL is not listed any more."
    )
    fields: Annotated[list[Word], declared(maxItems=100), Example(["changefreq"])] = Field(
        description="What differs between `before` and `after`."
    )


class ComparisonAnswer(PageAnswer[ComparedEntryAnswer]):
    """One page of differences; it may be empty and still have a `next_cursor`."""

    examined: SmallCount | None = Field(
        description="Number of changes examined for this page, about 10,000 at most."
    )
    from_seq: Annotated[Count, Example(3)] = Field(
        description="Number of the earlier scan in the change feed."
    )
    to_seq: Annotated[Count, Example(7)] = Field(
        description="Number of the later scan in the change feed."
    )
