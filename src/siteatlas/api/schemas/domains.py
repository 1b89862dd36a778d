"""Models of sites, their scans and their candidates."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import ConfigDict, Field, model_validator

from siteatlas.api.schemas.base import (
    DOMAIN_ID,
    JOB_ID,
    LATER,
    NOON,
    SITEMAP_COUNT,
    USER_ID,
    Address,
    AnswerShape,
    Count,
    Example,
    Line,
    MaxPages,
    Name,
    QueryShape,
    RequestShape,
    Seconds,
    SitemapTypeWord,
    SmallCount,
    Tag,
    TagFilter,
    Url,
    Word,
    declared,
    examples,
    one_of,
)
from siteatlas.scanner.events import DiscoveryMethod, Verdict
from siteatlas.settings import MAX_INTERVAL_HOURS, MIN_INTERVAL_HOURS
from siteatlas.storage.models import LastScanStatus, ScanScope, ScanState
from siteatlas.tags import MAX_TAGS, parse_tags

MAX_ROBOTS_CHARS = 1_000_000
INTERVAL = "Hours between scans; 0.016 is about one minute."
MAX_SHOWN_TAGS = 1_000
Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS)]
IntervalHours = Annotated[
    float,
    Field(ge=MIN_INTERVAL_HOURS, le=MAX_INTERVAL_HOURS, allow_inf_nan=False),
]


class DomainRequest(RequestShape):
    """A site to watch."""

    model_config = ConfigDict(
        json_schema_extra=examples({"domain": "example.com", "scan_interval_hours": 12})
    )

    domain: Address = Field(description="The site, with or without scheme.")
    watch: bool = Field(True, description="False registers the site without watching it.")
    scan_interval_hours: IntervalHours | None = Field(None, description=INTERVAL)
    max_pages: MaxPages | None = None
    tags: Tags = Field([], description="Tags to add; those that the site has are kept.")


class DomainChange(RequestShape):
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
    max_pages: MaxPages | None = None
    tags: Tags | None = Field(None, description="All tags of the site; an empty list removes them.")

    @model_validator(mode="after")
    def _check_changes(self) -> Self:
        """Validate the change of a site: at least one field, and none of them null."""
        if not self.model_fields_set:
            raise ValueError("at least one field is required")
        if any(getattr(self, name) is None for name in self.model_fields_set):
            raise ValueError("a field must not be null")
        return self

    def changes(self) -> dict[str, Any]:
        """The fields that the request sets, with their values."""
        given = self.model_dump(exclude_unset=True)
        return given if self.tags is None else given | {"tags": parse_tags(self.tags)}


class DomainAnswer(AnswerShape):
    """A site. Its counters are as of its last published scan."""

    id: Annotated[UUID, Example(DOMAIN_ID)]
    domain: Annotated[Name, Example("example.com")]
    origin: Annotated[Url | None, Example("https://www.example.com")]
    base_url: Annotated[Url, Example("https://example.com/")]
    watched: Annotated[bool, Example(True)]
    paused: Annotated[bool, Example(False)]
    scan_interval_hours: Annotated[Seconds | None, Example(24.0)]
    next_scan_at: Annotated[datetime | None, Example("2025-11-16T12:00:00Z")]
    max_pages: Count | None
    last_scan_at: Annotated[datetime | None, Example(LATER)]
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
    tags: Annotated[list[Word], declared(maxItems=MAX_SHOWN_TAGS), Example(["shop"])] = Field(
        description="Sorted, in lower case."
    )
    created_by: Annotated[UUID, Example(USER_ID)]
    created_at: Annotated[datetime, Example(NOON)]
    updated_at: Annotated[datetime, Example(LATER)]


class DomainAdded(DomainAnswer):
    """A site that was registered, and the scan that was queued."""

    job_id: Annotated[UUID | None, Example(JOB_ID)] = Field(
        None, description="The job of the scan; null if `watch` is false."
    )
    status_url: Annotated[Line | None, Example(f"/api/v3/sitemap/status/{JOB_ID}")] = Field(
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
    job_id: Annotated[UUID, Example(JOB_ID)]
    status_url: Annotated[Line, Example(f"/api/v3/sitemap/status/{JOB_ID}")]
    deduplicated: Annotated[bool, Example(False)] = Field(
        description="Whether the active job of the site does it."
    )


class ScanAnswer(AnswerShape):
    """One scan of a site, across all attempts of its job."""

    id: Annotated[Count, Example(7)]
    job_id: Annotated[UUID, Example(JOB_ID)]
    state: Annotated[str, one_of(ScanState), Example("published")]
    scope: Annotated[str, one_of(ScanScope), Example("full")] = Field(
        description="How much of the site the scan covers."
    )
    partial: Annotated[bool, Example(False)]
    reasons: Annotated[list[Word], declared(maxItems=100), Example([])]
    error_code: Word | None
    started_at: Annotated[datetime, Example(NOON)]
    finished_at: Annotated[datetime | None, Example(LATER)]
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
    checked_at: Annotated[datetime, Example(LATER)]


class RobotsFileAnswer(AnswerShape):
    """One version of the robots.txt of an origin of a site."""

    id: Annotated[Count, Example(3)]
    origin: Annotated[Url, Example("https://www.example.com")]
    http_status: Annotated[SmallCount | None, Example(200)]
    truncated: Annotated[bool, Example(False)] = Field(
        description="True if the file is longer than what is read of it."
    )
    first_seen_at: Annotated[datetime, Example(NOON)]
    last_seen_at: Annotated[datetime, Example(LATER)]
    content: Annotated[str, declared(maxLength=MAX_ROBOTS_CHARS), Example("User-agent: *\n")]
    diff: Annotated[
        Annotated[str, declared(maxLength=MAX_ROBOTS_CHARS)] | None,
        Example("-Disallow: /\n+User-agent: *"),
    ] = Field(
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
