"""Models of jobs: the submission of a scan and its result."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from siteatlas.api.schemas.base import (
    LOWERED,
    NO_NUL,
    Moment,
    QueryShape,
    TagFilter,
    UrlLimitShape,
    examples,
)
from siteatlas.catalog.views import (
    MAX_ADDRESS_CHARS,
    Address,
    Example,
    JobStatusWord,
    Line,
    Shown,
    SmallCount,
    View,
    Word,
    declared,
)
from siteatlas.scanner.options import MAX_PATTERN_CHARS, MAX_PATTERNS
from siteatlas.settings import MAX_PAGES

StatusWord = Annotated[
    Literal["pending", "processing", "completed", "failed", "cancelled", "complete", "error"],
    LOWERED,
]


Patterns = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=MAX_PATTERN_CHARS, pattern=NO_NUL)], ...],
    Field(max_length=MAX_PATTERNS, strict=False),
]


class ScanRequest(UrlLimitShape):
    """A site to scan."""

    model_config = ConfigDict(
        json_schema_extra=examples(
            {"base_url": "example.com"},
            {"base_url": "https://www.example.com/sitemap.xml", "watch": True},
            {"base_url": "https://www.example.com/news.xml", "only_document": True},
            {"base_url": "example.com", "sitemaps": ["*/blog-*"], "sitemaps_since": Shown.noon},
        )
    )

    base_url: Address = Field(
        description=(
            "The site, with or without scheme, a page of it, or one sitemap of it. "
            "A sitemap that could be read is read by later scans too."
        )
    )
    watch: bool = Field(False, description="Keep watching the site after this scan.")
    only_document: bool = Field(
        False,
        description="Read only the sitemap at `base_url`, and its children if it is an index. "
        "Everything else that is stored for the site stays unchanged.",
    )
    sitemaps: Patterns = Field(
        (),
        description="Of the sitemaps that an index lists, read only those whose URL matches one of "
        "these patterns. `*` stands for any characters, `?` for one, `[ab]` for one of a set; a "
        "pattern must match the whole URL.",
    )
    skip_sitemaps: Patterns = Field(
        (), description="Do not read sitemaps of an index whose URL matches one of these patterns."
    )
    sitemaps_since: Moment | None = Field(
        None,
        strict=False,
        description="Do not read sitemaps that an index lists with a `lastmod` before this time. "
        "Those without a `lastmod` are read. Without a time zone, the time is in UTC.",
    )


@dataclass(frozen=True, slots=True)
class ScanAccepted(View):
    """The job that scans the site; `deduplicated` is true if the site already had an active job."""

    job_id: Annotated[UUID, Example(Shown.job_id)]
    status: Annotated[JobStatusWord, Example("pending")]
    status_url: Annotated[Line, Example(f"/api/v3/sitemap/status/{Shown.job_id}")]
    created_at: Annotated[datetime, Example(Shown.noon)]
    deduplicated: Annotated[bool, Example(False)]
    max_urls: Annotated[int, declared(minimum=1, maximum=MAX_PAGES)] | None
    max_pages: Annotated[
        Annotated[int, declared(minimum=1, maximum=MAX_PAGES)] | None,
        Field(description="The same as `max_urls`."),
    ]
    warning: Annotated[
        Line | None, Example(None), Field(description="Set if no worker is running.")
    ] = None


class JobsQuery(QueryShape, TagFilter):
    """Which jobs to list."""

    status: StatusWord | None = Field(
        None, description="`complete` and `error` are accepted for `completed` and `failed`."
    )
    domain: str | None = Field(None, min_length=1, max_length=MAX_ADDRESS_CHARS)


MAX_DOMAINS = 1000


class BatchRequest(UrlLimitShape):
    """Sites to scan."""

    model_config = ConfigDict(
        json_schema_extra=examples({"domains": ["example.com", "example.org"]})
    )

    domains: Annotated[list[Address], Field(min_length=1, max_length=MAX_DOMAINS)]


@dataclass(frozen=True, slots=True)
class BatchItemAnswer(View):
    """One site as submitted, with its job or the reason why it has none."""

    domain: Address
    job_id: UUID | None
    error_code: Word | None


@dataclass(frozen=True, slots=True)
class BatchCreated(View):
    """A batch that was queued; sites that cannot be scanned have an `error_code`."""

    batch_id: Annotated[UUID, Example(Shown.batch_id)]
    status: Annotated[JobStatusWord, Example("pending")]
    total_domains: Annotated[
        SmallCount, Example(2), Field(description="Number of distinct domains in the request.")
    ]
    status_url: Annotated[Line, Example(f"/api/v3/sitemap/batch/status/{Shown.batch_id}")]
    items: Annotated[
        list[BatchItemAnswer],
        declared(maxItems=MAX_DOMAINS),
        Example(
            [
                {"domain": "example.com", "job_id": Shown.job_id, "error_code": None},
                {"domain": "http://10.0.0.1", "job_id": None, "error_code": "egress_denied"},
            ]
        ),
    ]
    warning: Annotated[
        Line | None, Example(None), Field(description="Set if no worker is running.")
    ] = None
