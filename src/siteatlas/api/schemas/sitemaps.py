"""Shapes of sitemap documents and of the URLs that they list."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Generic, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from siteatlas.api.schemas.base import (
    DOMAIN_ID,
    JOB_ID,
    LATER,
    NOON,
    SITEMAP_ID,
    USER_ID,
    AnswerShape,
    Count,
    FreeObject,
    ItemT,
    Line,
    Name,
    PageAnswer,
    Paragraph,
    QueryShape,
    Seconds,
    SitemapTypeWord,
    SmallCount,
    Url,
    Word,
    declared,
    examples,
    one_of,
)
from siteatlas.insights.sitemaps import MAX_PARENTS_SHOWN
from siteatlas.insights.urls import ListingState
from siteatlas.scanner.events import DiscoveryMethod
from siteatlas.storage.models import SitemapStatus

SITEMAP = {
    "id": SITEMAP_ID,
    "url": "https://example.com/sitemap.xml",
    "domain": "example.com",
    "domain_id": DOMAIN_ID,
    "type": "standard",
    "discovery_method": "robots_txt",
    "status": "completed",
    "job_id": JOB_ID,
    "created_by": USER_ID,
    "created_at": NOON,
    "last_read_at": LATER,
    "url_count": 12,
    "http_status": 200,
    "wire_bytes": 512,
    "decoded_bytes": 2048,
    "fetch_seconds": 0.2,
    "lastmod": None,
    "parent_ids": [],
    "error_code": None,
    "error": None,
}
URL = {
    "url": "https://example.com/about",
    "lastmod": "2025-11-15T00:00:00Z",
    "changefreq": "weekly",
    "priority": 0.5,
    "sitemap": "https://example.com/sitemap.xml",
    "sitemap_id": SITEMAP_ID,
    "first_seen_at": LATER,
    "removed_at": None,
    "extras": {"images": [{"loc": "https://example.com/about.png"}]},
    "lastmod_text": "2025-11-15",
}


class SitemapAnswer(AnswerShape):
    """One document; `job_id` is the job that read it last."""

    model_config = ConfigDict(json_schema_extra=examples(SITEMAP))

    id: UUID
    url: Url
    domain: Name
    domain_id: UUID
    type: SitemapTypeWord | None
    discovery_method: Annotated[str, one_of(DiscoveryMethod)]
    status: Annotated[str, one_of(SitemapStatus)]
    job_id: UUID
    created_by: UUID
    created_at: datetime
    last_read_at: datetime | None
    url_count: Count = Field(
        description="Number of stored URLs, including those from earlier scans."
    )
    http_status: SmallCount | None
    wire_bytes: Count
    decoded_bytes: Count
    fetch_seconds: Seconds
    lastmod: datetime | None
    parent_ids: Annotated[list[UUID], declared(maxItems=MAX_PARENTS_SHOWN)]
    error_code: Word | None
    error: Paragraph | None


class UrlAnswer(AnswerShape):
    """One URL as a document lists it."""

    model_config = ConfigDict(json_schema_extra=examples(URL))

    url: Url
    lastmod: datetime | None
    changefreq: Word | None
    priority: float | None
    sitemap: Url
    sitemap_id: UUID
    first_seen_at: datetime
    removed_at: datetime | None = Field(description="Always null: removals are not detected yet.")
    extras: FreeObject | None
    lastmod_text: Line | None = Field(
        description="`lastmod` as listed, unless that is a full timestamp."
    )


class ExaminedPageAnswer(PageAnswer[ItemT], Generic[ItemT]):
    """One page of a list that may be searched; it may be empty while `next_cursor` leads on."""

    examined: SmallCount | None = Field(
        description="Rows that were looked at for this page, at most 10,000. With `contains`, a "
        "page without items is not the end: the end is where `next_cursor` is null."
    )


class SitemapsQuery(QueryShape):
    """Which documents to list."""

    type: Literal["standard", "index", "text", "rss", "atom"] | None = None
    status: Literal["pending", "completed", "failed", "complete", "error"] | None = Field(
        None, description="`complete` and `error` are accepted for `completed` and `failed`."
    )


class UrlsQuery(QueryShape):
    """Which URLs to list."""

    contains: str | None = Field(
        None,
        min_length=1,
        max_length=500,
        pattern=r"^[^\x00]*$",
        description="Text inside the URL, in any case. One request examines up to 10,000 rows; go "
        "on with `next_cursor` until it is null, even if a page has no items.",
    )
    state: ListingState = Field(
        ListingState.LISTED,
        description="Listed, removed, or all of them. Nothing is removed yet: a URL that a sitemap "
        "no longer lists stays listed, and `removed` is empty.",
    )
