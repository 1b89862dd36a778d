"""Models of the problems of a site's documents."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field

from siteatlas.api.schemas.base import (
    LATER,
    MAX_ADDRESS_CHARS,
    NO_NUL,
    NOON,
    SITEMAP_ID,
    AnswerShape,
    Count,
    Example,
    Line,
    QueryShape,
    SmallCount,
    Url,
    Word,
    declared,
)
from siteatlas.insights.problems import ProblemState
from siteatlas.scanner.reading.tally import MAX_SAMPLES


class SampleAnswer(AnswerShape):
    """One occurrence of a problem in a document; unknown fields are null."""

    url: Line | None = Field(description="The page, truncated after 500 characters.")
    value: Line | None = Field(description="The value as listed, truncated after 200 characters.")
    entry: SmallCount | None = Field(description="The number of the entry, starting at 1.")


class ProblemAnswer(AnswerShape):
    """One kind of problem in one document, as of the last read that found it."""

    code: Annotated[Word, Example("lastmod_invalid")]
    meaning: Annotated[
        Line | None, Example("a `lastmod` that is not a date; the entry is kept without it")
    ]
    sitemap: Annotated[Url, Example("https://example.com/sitemap.xml")]
    sitemap_id: Annotated[UUID, Example(SITEMAP_ID)]
    count: Annotated[Count, Example(1)]
    samples: Annotated[
        list[SampleAnswer],
        declared(maxItems=MAX_SAMPLES),
        Example([{"url": "https://example.com/about", "value": "yesterday", "entry": 12}]),
    ]
    first_scan_id: Annotated[Count, Example(3)]
    last_scan_id: Annotated[Count, Example(7)]
    first_seen_at: Annotated[datetime, Example(NOON)]
    last_seen_at: Annotated[datetime, Example(LATER)]
    resolved_at: datetime | None = Field(
        description="When a complete read of the document no longer found the problem."
    )


class ProblemsQuery(QueryShape):
    """Which problems to list."""

    code: str | None = Field(
        None,
        min_length=1,
        max_length=64,
        pattern=r"^[a-z0-9_]+$",
        description="Only problems with this code.",
    )
    sitemap: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_ADDRESS_CHARS,
        pattern=NO_NUL,
        description="Only problems in the sitemap with this URL.",
    )
    state: ProblemState = Field(
        ProblemState.CURRENT,
        description="Current problems, resolved problems, or all.",
    )
