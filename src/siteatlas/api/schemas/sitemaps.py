"""Models of sitemap documents."""

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
    Name,
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


class SitemapsQuery(QueryShape):
    """Which documents to list."""

    type: Literal["standard", "index", "text", "rss", "atom"] | None = None
    status: Literal["pending", "completed", "failed", "complete", "error"] | None = Field(
        None, description="`complete` and `error` are accepted for `completed` and `failed`."
    )
