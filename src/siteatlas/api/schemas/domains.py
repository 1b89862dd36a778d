"""Shapes of sites, their scans, and the places where their sitemaps were looked for."""

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
    Line,
    MaxPages,
    Name,
    QueryShape,
    RequestShape,
    Seconds,
    SitemapTypeWord,
    SmallCount,
    Url,
    Word,
    declared,
    examples,
    one_of,
)
from siteatlas.scanner.events import DiscoveryMethod, Verdict
from siteatlas.settings import IntervalHours
from siteatlas.storage.models import ScanState

SCAN_ENDS = ("completed", "partial", "failed")
INTERVAL = "Hours between two scans; 0.016 is about one minute."
DOMAIN = {
    "id": DOMAIN_ID,
    "domain": "example.com",
    "origin": "https://www.example.com",
    "base_url": "https://example.com/",
    "watched": True,
    "paused": False,
    "scan_interval_hours": 24.0,
    "next_scan_at": "2025-11-16T12:00:00Z",
    "max_pages": None,
    "last_scan_at": LATER,
    "last_scan_status": "completed",
    "last_error_code": None,
    "failures_in_a_row": 0,
    "url_count": 12,
    "distinct_url_count": 12,
    "sitemap_count": 1,
    "created_by": USER_ID,
    "created_at": NOON,
    "updated_at": LATER,
}
ADDED = DOMAIN | {
    "job_id": JOB_ID,
    "status_url": f"/api/v3/sitemap/status/{JOB_ID}",
    "warning": None,
}
SCAN = {
    "id": 7,
    "job_id": JOB_ID,
    "state": "published",
    "partial": False,
    "reasons": [],
    "error_code": None,
    "started_at": NOON,
    "finished_at": LATER,
    "sitemap_count": 1,
    "url_count": 12,
    "distinct_url_count": 12,
    "published_seq": 7,
}
CANDIDATE = {
    "url": "https://example.com/sitemap_index.xml",
    "method": "common_path",
    "verdict": "rejected",
    "reason": "http_not_found",
    "type": None,
    "http_status": 404,
    "scan_id": 7,
    "checked_at": LATER,
}


class DomainRequest(RequestShape):
    """A site to watch."""

    model_config = ConfigDict(
        json_schema_extra=examples({"domain": "example.com", "scan_interval_hours": 12})
    )

    domain: Address = Field(description="The site, with or without scheme.")
    watch: bool = Field(True, description="False registers the site without watching it.")
    scan_interval_hours: IntervalHours | None = Field(None, description=INTERVAL)
    max_pages: MaxPages | None = None


class DomainChange(RequestShape):
    """What to change; what is not named stays as it is."""

    model_config = ConfigDict(
        json_schema_extra=examples({"paused": True}, {"watched": True, "scan_interval_hours": 6})
    )

    watched: bool | None = Field(None, description="Watching a site makes it due immediately.")
    paused: bool | None = None
    scan_interval_hours: IntervalHours | None = Field(
        None, description=f"{INTERVAL} A new one counts from the last scan, or from now."
    )
    max_pages: MaxPages | None = None

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("nothing to change is named")
        if any(getattr(self, name) is None for name in self.model_fields_set):
            raise ValueError("a field that is named must have a value")
        return self

    def changes(self) -> dict[str, Any]:
        """The named fields."""
        return self.model_dump(exclude_unset=True)


class DomainAnswer(AnswerShape):
    """A site.

    Its counters say what is stored of it, as of its last published scan; they do not fall when the
    site lists less.
    """

    model_config = ConfigDict(json_schema_extra=examples(DOMAIN))

    id: UUID
    domain: Name
    origin: Url | None
    base_url: Url
    watched: bool
    paused: bool
    scan_interval_hours: Seconds | None
    next_scan_at: datetime | None
    max_pages: Count | None
    last_scan_at: datetime | None
    last_scan_status: Annotated[str, one_of(SCAN_ENDS)] | None
    last_error_code: Word | None
    failures_in_a_row: SmallCount
    url_count: Count = Field(
        description="Number of stored URLs, including those from earlier scans."
    )
    distinct_url_count: Count
    sitemap_count: Count = Field(description=SITEMAP_COUNT)
    created_by: UUID
    created_at: datetime
    updated_at: datetime


class DomainAdded(DomainAnswer):
    """A site that was registered, and the scan of it that was queued."""

    model_config = ConfigDict(json_schema_extra=examples(ADDED))

    job_id: UUID | None = Field(None, description="The job of the scan; null without `watch`.")
    status_url: Line | None = Field(None, description="Where to follow the scan.")
    warning: Line | None = Field(None, description="Set if no worker is running.")


class ScanAnswer(AnswerShape):
    """One scan of a site, over all attempts of its job."""

    model_config = ConfigDict(json_schema_extra=examples(SCAN))

    id: Count
    job_id: UUID
    state: Annotated[str, one_of(ScanState)]
    partial: bool
    reasons: Annotated[list[Word], declared(maxItems=100)]
    error_code: Word | None
    started_at: datetime
    finished_at: datetime | None
    sitemap_count: Count = Field(description=SITEMAP_COUNT)
    url_count: Count = Field(description="Number of URLs that this scan read.")
    distinct_url_count: Count
    published_seq: Count | None


class CandidateAnswer(AnswerShape):
    """A place where a sitemap was looked for, and what was found there."""

    model_config = ConfigDict(json_schema_extra=examples(CANDIDATE))

    url: Url
    method: Annotated[str, one_of(DiscoveryMethod)]
    verdict: Annotated[str, one_of(Verdict)]
    reason: Word | None
    type: SitemapTypeWord | None
    http_status: SmallCount | None
    scan_id: Count
    checked_at: datetime


class DomainsQuery(QueryShape):
    """Which sites to list."""

    watched: bool | None = None


class CandidatesQuery(QueryShape):
    """Which candidates to list."""

    verdict: Literal["accepted", "rejected", "skipped"] | None = None


class ScansQuery(QueryShape):
    """Which scans to list."""
