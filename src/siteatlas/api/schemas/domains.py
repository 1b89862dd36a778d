"""Models of sites, their scans and their candidates."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, model_validator

from siteatlas.api.schemas.base import (
    MAX_ADDRESS_CHARS,
    NO_NUL,
    SITEMAP_COUNT,
    Address,
    AnswerShape,
    Count,
    Example,
    Line,
    Name,
    QueryShape,
    RequestShape,
    Seconds,
    Shown,
    SitemapTypeWord,
    SmallCount,
    Tag,
    TagFilter,
    Url,
    UrlLimitShape,
    Word,
    declared,
    examples,
    one_of,
    response_example,
)
from siteatlas.catalog.problems import ProblemState
from siteatlas.catalog.url_lists import DEFAULT_SECTIONS, MAX_MONTHS, MAX_SECTIONS
from siteatlas.scanner.events import DiscoveryMethod, Verdict
from siteatlas.scanner.reading.entries import MAX_SAMPLES
from siteatlas.settings import MAX_INTERVAL_HOURS, MIN_INTERVAL_HOURS
from siteatlas.storage.models import LastScanStatus, ScanScope, ScanState
from siteatlas.text import MAX_TAGS, parse_tags


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
    sitemap_id: Annotated[UUID, Example(Shown.sitemap_id)]
    count: Annotated[Count, Example(1)]
    samples: Annotated[
        list[SampleAnswer],
        declared(maxItems=MAX_SAMPLES),
        Example([{"url": "https://example.com/about", "value": "yesterday", "entry": 12}]),
    ]
    first_scan_id: Annotated[Count, Example(3)]
    last_scan_id: Annotated[Count, Example(7)]
    first_seen_at: Annotated[datetime, Example(Shown.noon)]
    last_seen_at: Annotated[datetime, Example(Shown.later)]
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


INTERVAL = "Hours between scans; 0.016 is about one minute."
RobotsText = Annotated[str, declared(maxLength=1_000_000)]
Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS)]
IntervalHours = Annotated[
    float,
    Field(ge=MIN_INTERVAL_HOURS, le=MAX_INTERVAL_HOURS, allow_inf_nan=False),
]


class DomainRequest(UrlLimitShape):
    """A site to watch."""

    model_config = ConfigDict(
        json_schema_extra=examples({"domain": "example.com", "scan_interval_hours": 12})
    )

    domain: Address = Field(description="The site, with or without scheme.")
    watch: bool = Field(True, description="False registers the site without watching it.")
    scan_interval_hours: IntervalHours | None = Field(None, description=INTERVAL)
    tags: Tags = Field([], description="Tags to add; those that the site has are kept.")


class DomainChange(UrlLimitShape):
    """The fields to change; the others keep their values."""

    model_config = ConfigDict(
        json_schema_extra=examples({"paused": True}, {"watched": True, "scan_interval_hours": 6})
    )

    watched: bool | None = Field(
        None, description="Watching a site that is not watched makes it due immediately."
    )
    paused: bool | None = None
    scan_interval_hours: IntervalHours | None = Field(
        None, description=f"{INTERVAL} A new interval counts from the last scan, or from now."
    )
    tags: Tags | None = Field(None, description="All tags of the site; an empty list removes them.")

    @model_validator(mode="after")
    def _check_changes(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("at least one field is required")
        if any(getattr(self, name) is None for name in self.model_fields_set):
            raise ValueError("a field must not be null")
        return self

    def changes(self) -> dict[str, Any]:
        """The fields that the request sets, with their values."""
        given = self.model_dump(exclude_unset=True, exclude={"max_urls", "max_pages"})
        given |= {"max_pages": self.url_limit} if self.url_limit else {}
        return given if self.tags is None else given | {"tags": parse_tags(self.tags)}


class SiteHeadersRequest(RequestShape):
    """Request headers for scans of a site, and the one origin that gets them."""

    model_config = ConfigDict(
        json_schema_extra=examples({"origin": "https://example.com", "headers": {"X-Key": "x"}})
    )

    origin: Address = Field(description="Scheme, host and port; no other origin gets the headers.")
    headers: dict[str, Annotated[str, Field(max_length=8192)]] = Field(
        max_length=20, description="Values by name, which no response shows; empty removes them."
    )


class SiteHeadersAnswer(AnswerShape):
    """The request headers of a site without their values."""

    origin: Annotated[Url, Example("https://example.com")]
    names: Annotated[list[Word], declared(maxItems=20), Example(["Authorization"])]


class DomainAnswer(AnswerShape):
    """A site. Its counters are as of its last published scan."""

    id: Annotated[UUID, Example(Shown.domain_id)]
    domain: Annotated[Name, Example("example.com")]
    origin: Annotated[Url | None, Example("https://www.example.com")]
    base_url: Annotated[Url, Example("https://example.com/")]
    watched: Annotated[bool, Example(True)]
    paused: Annotated[bool, Example(False)]
    scan_interval_hours: Annotated[Seconds | None, Example(24.0)]
    next_scan_at: Annotated[datetime | None, Example("2025-11-16T12:00:00Z")]
    max_urls: Count | None
    max_pages: Count | None = Field(description="The same as `max_urls`.")
    last_scan_at: Annotated[datetime | None, Example(Shown.later)]
    last_scan_status: Annotated[Annotated[str, one_of(LastScanStatus)] | None, Example("completed")]
    last_error_code: Word | None
    failures_in_a_row: Annotated[SmallCount, Example(0)]
    url_count: Annotated[Count, Example(12)] = Field(
        description="Number of listed URLs, including those that are missing."
    )
    distinct_url_count: Annotated[Count, Example(12)]
    sitemap_count: Annotated[Count, Example(1)] = Field(description=SITEMAP_COUNT)
    missing_count: Annotated[Count, Example(0)] = Field(
        description="Number of listed URLs that are missing from their sitemaps, without proof "
        "that they were removed."
    )
    removals_held_since: datetime | None = Field(
        description="Since when the removal of missing URLs has been held back."
    )
    last_published_seq: Annotated[Count | None, Example(7)] = Field(
        description="Number of the last published scan in the change feed."
    )
    tags: Annotated[list[Word], declared(maxItems=1_000), Example(["shop"])] = Field(
        description="Sorted, in lower case."
    )
    created_by: Annotated[UUID, Example(Shown.user_id)]
    created_at: Annotated[datetime, Example(Shown.noon)]
    updated_at: Annotated[datetime, Example(Shown.later)]


class DomainAdded(DomainAnswer):
    """A site that was registered, and the scan that was queued."""

    job_id: Annotated[UUID | None, Example(Shown.job_id)] = Field(
        None, description="The job of the scan; null if `watch` is false."
    )
    status_url: Annotated[Line | None, Example(f"/api/v3/sitemap/status/{Shown.job_id}")] = Field(
        None, description="Path of the status of the scan."
    )
    warning: Annotated[Line | None, Example(None)] = Field(
        None, description="Set if no worker is running."
    )


class ReleaseAnswer(AnswerShape):
    """The scan that ends the hold of a site's removals."""

    domain: Annotated[Name, Example("example.com")]
    missing_count: Annotated[Count, Example(31)] = Field(
        description="Number of URLs that are removed if the scan misses them too."
    )
    job_id: Annotated[UUID, Example(Shown.job_id)]
    status_url: Annotated[Line, Example(f"/api/v3/sitemap/status/{Shown.job_id}")]
    deduplicated: Annotated[bool, Example(False)] = Field(
        description="Whether the active job of the site does it."
    )


class ScanAnswer(AnswerShape):
    """One scan of a site, across all attempts of its job."""

    id: Annotated[Count, Example(7)]
    job_id: Annotated[UUID, Example(Shown.job_id)]
    state: Annotated[str, one_of(ScanState), Example("published")]
    scope: Annotated[str, one_of(ScanScope), Example("full")] = Field(
        description="How much of the site the scan covers."
    )
    partial: Annotated[bool, Example(False)]
    reasons: Annotated[list[Word], declared(maxItems=100), Example([])]
    error_code: Word | None
    started_at: Annotated[datetime, Example(Shown.noon)]
    finished_at: Annotated[datetime | None, Example(Shown.later)]
    sitemap_count: Annotated[Count, Example(1)] = Field(description=SITEMAP_COUNT)
    url_count: Annotated[Count, Example(12)] = Field(
        description="Number of URLs that the site lists after this scan."
    )
    distinct_url_count: Annotated[Count, Example(12)]
    read_url_count: Annotated[Count, Example(12)] = Field(
        description="Number of URLs that this scan read."
    )
    change_counts: Annotated[dict[str, Count] | None, Example({"added": 2, "removed": 1})] = Field(
        description="Number of changes by kind; null if the scan was not published."
    )
    published_seq: Annotated[Count | None, Example(7)] = Field(
        description="Number of the scan in the change feed."
    )


class CandidateAnswer(AnswerShape):
    """An address where a sitemap was looked for, and what was found there."""

    url: Annotated[Url, Example("https://example.com/sitemap_index.xml")]
    method: Annotated[str, one_of(DiscoveryMethod), Example("common_path")]
    verdict: Annotated[str, one_of(Verdict), Example("rejected")]
    reason: Annotated[Word | None, Example("http_not_found")]
    type: SitemapTypeWord | None
    http_status: Annotated[SmallCount | None, Example(404)]
    scan_id: Annotated[Count, Example(7)]
    checked_at: Annotated[datetime, Example(Shown.later)]


class RobotsFileAnswer(AnswerShape):
    """One version of the robots.txt of an origin of a site."""

    id: Annotated[Count, Example(3)]
    origin: Annotated[Url, Example("https://www.example.com")]
    http_status: Annotated[SmallCount | None, Example(200)]
    truncated: Annotated[bool, Example(False)] = Field(
        description="True if the file is longer than what is read of it."
    )
    first_seen_at: Annotated[datetime, Example(Shown.noon)]
    last_seen_at: Annotated[datetime, Example(Shown.later)]
    content: Annotated[RobotsText, Example("User-agent: *\n")]
    diff: Annotated[RobotsText | None, Example("-Disallow: /\n+User-agent: *")] = Field(
        description="What differs from the version before, line by line; null for the first one."
    )


class RobotsQuery(QueryShape):
    """Which versions to list."""


class DomainsQuery(QueryShape, TagFilter):
    """Which sites to list."""

    watched: bool | None = None


class CandidatesQuery(QueryShape):
    """Which candidates to list."""

    verdict: Literal["accepted", "rejected", "skipped"] | None = None


class ScansQuery(QueryShape):
    """Which scans to list."""


MAX_IMPORTED = 5_000


class ImportedSiteRequest(RequestShape):
    """A site of the list."""

    model_config = ConfigDict(
        json_schema_extra=examples({"domain": "example.com", "scan_interval_hours": 12})
    )

    domain: str = Field(
        max_length=MAX_ADDRESS_CHARS, description="The site, with or without scheme."
    )
    scan_interval_hours: IntervalHours | None = Field(None, description=INTERVAL)
    tags: Tags = Field([], description="Tags to add; those that the site has are kept.")


class ImportRequest(RequestShape):
    """Sites to watch."""

    model_config = ConfigDict(
        json_schema_extra=examples(
            {
                "sites": [
                    {"domain": "example.com", "scan_interval_hours": 12, "tags": ["shop"]},
                    {"domain": "example.org"},
                ],
                "tags": ["customers"],
            }
        )
    )

    sites: Annotated[list[ImportedSiteRequest], Field(min_length=1, max_length=MAX_IMPORTED)]
    tags: Tags = Field([], description="Tags to add to every site of the list.")


class ImportFault(AnswerShape):
    """A site of the list that was not added, and why."""

    position: Annotated[SmallCount, Example(1)] = Field(
        description="Its position in `sites`, counted from 0."
    )
    domain: Annotated[Name, Example("10.0.0.1")]
    error_code: Annotated[Word, Example("egress_denied")]
    error: Annotated[Line, Example("Connections to this address are not allowed.")]


class ImportAnswer(AnswerShape):
    """What became of the list. A site that it names twice counts once."""

    added: Annotated[Count, Example(1)] = Field(description="Number of sites that were not stored.")
    known: Annotated[Count, Example(0)] = Field(description="Number of sites that were stored.")
    errors: Annotated[
        list[ImportFault],
        declared(maxItems=MAX_IMPORTED),
        Example([response_example(ImportFault)]),
    ]
    warning: Annotated[Line | None, Example(None)] = Field(
        None, description="Set if no worker is running."
    )
