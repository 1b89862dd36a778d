"""Models of the sections of a site."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from siteatlas.api.schemas.base import AnswerShape, Count, Example, Name, Word, declared
from siteatlas.insights.sections import DEFAULT_SECTIONS, MAX_MONTHS, MAX_SECTIONS


class SectionsQuery(BaseModel):
    """How many sections to show."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(
        DEFAULT_SECTIONS,
        ge=1,
        le=MAX_SECTIONS,
        description="Maximum number of sections; the largest come first.",
    )


class SectionAnswer(AnswerShape):
    """One section of a site."""

    section: Annotated[Name, Example("/blog/")] = Field(
        description="The first segment of the path if anything follows it, otherwise `/`."
    )
    url_count: Annotated[Count, Example(1200)]


class MonthAnswer(AnswerShape):
    """One month of the dates of a site."""

    month: Annotated[Word, Example("2025-11")]
    url_count: Annotated[Count, Example(310)]


class SectionsAnswer(AnswerShape):
    """How the URLs of a site are distributed, as of the last complete read of each sitemap.

    A sitemap that was never read completely counts as of its last read.
    """

    url_count: Annotated[Count, Example(1210)] = Field(
        description="Number of URLs that were counted. A URL in several sitemaps is counted in "
        "each of them; one that is missing from its sitemap is not counted."
    )
    sitemap_count: Annotated[Count, Example(3)] = Field(
        description="Number of sitemaps that were counted."
    )
    complete: Annotated[bool, Example(True)] = Field(
        description="False if the site has more sitemaps than are counted."
    )
    sections: Annotated[
        list[SectionAnswer],
        declared(maxItems=MAX_SECTIONS),
        Example([{"section": "/blog/", "url_count": 1200}]),
    ] = Field(description="The largest sections, the largest first.")
    other_url_count: Annotated[Count, Example(10)] = Field(
        description="Number of URLs in all other sections."
    )
    months: Annotated[
        list[MonthAnswer],
        declared(maxItems=MAX_MONTHS),
        Example([{"month": "2025-11", "url_count": 310}]),
    ] = Field(description="Number of URLs by the month of their `lastmod` in UTC, oldest first.")
    other_month_url_count: Annotated[Count, Example(0)] = Field(
        description="Number of URLs with a `lastmod` in a month that is not shown."
    )
    undated_url_count: Annotated[Count, Example(900)] = Field(
        description="Number of URLs without `lastmod`."
    )
