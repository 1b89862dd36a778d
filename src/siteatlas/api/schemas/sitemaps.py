"""Models of sitemap documents and their URLs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from siteatlas.api.schemas.base import (
    DOMAIN_ID,
    JOB_ID,
    LATER,
    NOON,
    SITEMAP_ID,
    USER_ID,
    AnswerShape,
    Count,
    Example,
    FreeObject,
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
    one_of,
)
from siteatlas.insights.sitemaps import MAX_PARENTS_SHOWN
from siteatlas.insights.urls import ListingState
from siteatlas.scanner.events import DiscoveryMethod
from siteatlas.storage.models import SitemapStatus


class SitemapAnswer(AnswerShape):
    """One document; `job_id` is the job that read it last."""

    id: Annotated[UUID, Example(SITEMAP_ID)]
    url: Annotated[Url, Example("https://example.com/sitemap.xml")]
    domain: Annotated[Name, Example("example.com")]
    domain_id: Annotated[UUID, Example(DOMAIN_ID)]
    type: Annotated[SitemapTypeWord | None, Example("standard")]
    discovery_method: Annotated[str, one_of(DiscoveryMethod), Example("robots_txt")]
    status: Annotated[str, one_of(SitemapStatus), Example("completed")]
    job_id: Annotated[UUID, Example(JOB_ID)]
    created_by: Annotated[UUID, Example(USER_ID)]
    created_at: Annotated[datetime, Example(NOON)]
    last_read_at: Annotated[datetime | None, Example(LATER)]
    url_count: Annotated[Count, Example(12)] = Field(
        description="Number of listed URLs, including those that are missing without proof of "
        "their removal."
    )
    http_status: Annotated[SmallCount | None, Example(200)]
    wire_bytes: Annotated[Count, Example(512)]
    decoded_bytes: Annotated[Count, Example(2048)]
    fetch_seconds: Annotated[Seconds, Example(0.2)]
    lastmod: datetime | None
    parent_ids: Annotated[list[UUID], declared(maxItems=MAX_PARENTS_SHOWN), Example([])]
    error_code: Word | None
    error: Paragraph | None


class UrlAnswer(AnswerShape):
    """One URL as listed by a document."""

    url: Annotated[Url, Example("https://example.com/about")]
    lastmod: Annotated[datetime | None, Example("2025-11-15T00:00:00Z")]
    changefreq: Annotated[Word | None, Example("weekly")]
    priority: Annotated[float | None, Example(0.5)]
    sitemap: Annotated[Url, Example("https://example.com/sitemap.xml")]
    sitemap_id: Annotated[UUID, Example(SITEMAP_ID)]
    first_seen_at: Annotated[datetime, Example(LATER)]
    removed_at: datetime | None = Field(
        description="When it was proved that the sitemap no longer lists the URL; null if listed."
    )
    extras: Annotated[
        FreeObject | None, Example({"images": [{"loc": "https://example.com/about.png"}]})
    ]
    lastmod_text: Annotated[Line | None, Example("2025-11-15")] = Field(
        description="`lastmod` as listed, unless that is a full timestamp."
    )


class UrlPageAnswer(PageAnswer[UrlAnswer]):
    """One page of URLs; with a filter it may be empty and still have a `next_cursor`."""

    examined: SmallCount | None = Field(
        description="Number of rows examined for this page, at most 10,000. With a filter, a page "
        "may be empty; the list ends where `next_cursor` is null."
    )
    as_of_seq: Count | None = Field(
        description="Only on the first page: continue with the change feed after this number when "
        "all pages have been read."
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
        description="Only URLs that contain this text, ignoring case. One request examines up to "
        "10,000 rows; continue until `next_cursor` is null, even if a page is empty.",
    )
    state: ListingState = Field(
        ListingState.LISTED,
        description="Listed URLs, removed URLs, or all. A URL that is missing from its sitemap "
        "stays listed until its removal is proved.",
    )
