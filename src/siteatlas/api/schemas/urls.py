"""Models of stored URLs, and the filters of their lists."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from siteatlas.api.schemas.base import (
    LOWERED,
    MAX_ADDRESS_CHARS,
    NO_NUL,
    AnswerShape,
    Count,
    Example,
    FreeObject,
    Line,
    Moment,
    Name,
    PageAnswer,
    Paragraph,
    QueryShape,
    Seconds,
    Shown,
    SitemapTypeWord,
    SmallCount,
    TagFilter,
    Url,
    Word,
    declared,
    list_pattern,
    one_of,
)
from siteatlas.api.schemas.changes import ChangeAnswer, KindsFilter
from siteatlas.catalog.paging import MAX_BIGINT, MAX_CURSOR_CHARS, MAX_LIMIT
from siteatlas.catalog.sitemaps import MAX_PARENTS_SHOWN
from siteatlas.catalog.url_lists import ListingState, PointInTime, UrlExtra, UrlFilter
from siteatlas.errors import InputError
from siteatlas.export.encoding import Exported, ExportFormat
from siteatlas.scanner.events import DiscoveryMethod
from siteatlas.storage.models import SitemapStatus


class UrlAnswer(AnswerShape):
    """One URL as listed by a document."""

    url: Annotated[Url, Example("https://example.com/about")]
    lastmod: Annotated[datetime | None, Example("2025-11-15T00:00:00Z")]
    changefreq: Annotated[Word | None, Example("weekly")]
    priority: Annotated[float | None, Example(0.5)]
    sitemap: Annotated[Url, Example("https://example.com/sitemap.xml")]
    sitemap_id: Annotated[UUID, Example(Shown.sitemap_id)]
    first_seen_at: Annotated[datetime, Example(Shown.later)]
    removed_at: datetime | None = Field(
        description="When it was proved that the sitemap no longer lists the URL; null if listed."
    )
    extras: Annotated[
        FreeObject | None, Example({"images": [{"loc": "https://example.com/about.png"}]})
    ]
    lastmod_text: Annotated[Line | None, Example("2025-11-15")] = Field(
        description="`lastmod` as listed, unless that is a full timestamp."
    )
    domain: Annotated[Name, Example("example.com")]


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
    total: Count | None = Field(
        description="Only on the first page, and only without a filter other than `sitemap`: the "
        "number of URLs in the list as of the last published scan."
    )


class UrlFilters(BaseModel):
    """Which URLs to show."""

    contains: str | None = Field(
        None,
        min_length=1,
        max_length=500,
        pattern=NO_NUL,
        description="Only URLs that contain this text, ignoring case. One request examines up to "
        "10,000 rows; continue until `next_cursor` is null, even if a page is empty.",
    )
    prefix: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_ADDRESS_CHARS,
        pattern=NO_NUL,
        description="Only URLs that start with this text.",
    )
    url: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_ADDRESS_CHARS,
        pattern=NO_NUL,
        description="Only this URL, exactly as listed; found at once through an index.",
    )
    sitemap: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_ADDRESS_CHARS,
        pattern=NO_NUL,
        description="Only URLs in the sitemap with this id or URL.",
    )
    lastmod_from: Moment | None = Field(
        None, description="Only with a `lastmod` from this time on."
    )
    lastmod_to: Moment | None = Field(None, description="Only with a `lastmod` before this time.")
    first_seen_from: Moment | None = Field(
        None, description="Only URLs that were first seen from this time on."
    )
    first_seen_to: Moment | None = Field(
        None, description="Only URLs that were first seen before this time."
    )
    has: str | None = Field(
        None,
        max_length=100,
        pattern=list_pattern(UrlExtra),
        description="Only URLs that have all of these extras, separated by commas.",
        examples=["images,alternates"],
    )
    state: ListingState = Field(
        ListingState.LISTED,
        description="Listed URLs, removed URLs, or all. A URL that is missing from its sitemap "
        "stays listed until its removal is proved.",
    )

    @property
    def wanted(self) -> UrlFilter:
        """The filter that these parameters describe."""
        given = self.model_dump(include=set(UrlFilters.model_fields) - {"has"})
        extras = self.has.split(",") if self.has else ()
        return UrlFilter(**given, has=frozenset(map(UrlExtra, extras)))


class UrlsQuery(UrlFilters, QueryShape):
    """Which URLs to list."""


class AllUrlsQuery(UrlsQuery, TagFilter):
    """Which URLs of all sites to list."""


class PastMoment(BaseModel):
    """When the URLs of a site were as they are to be shown."""

    at: Moment | None = Field(
        None,
        description="Show the URLs that were listed at this time, with the values that they had. "
        "The change feed must be retained since then.",
    )
    at_seq: int | None = Field(
        None,
        ge=0,
        le=MAX_BIGINT,
        description="The same, at this number of the change feed. Use either `at` or `at_seq`.",
    )

    @property
    def moment(self) -> PointInTime | None:
        """The time or the number; None for the present."""
        if self.at is not None and self.at_seq is not None:
            raise InputError("Use either at or at_seq, not both.")
        return self.at if self.at_seq is None else self.at_seq


class DomainUrlsQuery(PastMoment, UrlsQuery):
    """Which URLs of a site to list, and when."""


class ExportQuery(PastMoment, UrlFilters, KindsFilter):
    """What to export, and in which format. The filters of URLs do not apply to changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    what: Exported = Field(
        Exported.URLS,
        description="The URLs, or their changes. `after` and `kinds` apply to changes only.",
    )
    format: ExportFormat = Field(
        ExportFormat.CSV, description="`parquet` needs the extra `parquet` on the server."
    )
    after: int | None = Field(
        None,
        ge=0,
        le=MAX_BIGINT,
        description="Only changes after this number. Without it, all that are retained.",
    )


class AllExportQuery(ExportQuery, TagFilter):
    """What to export of all sites, or of those with a tag."""


class SitemapAnswer(AnswerShape):
    """One document; `job_id` is the job that read it last."""

    id: Annotated[UUID, Example(Shown.sitemap_id)]
    url: Annotated[Url, Example("https://example.com/sitemap.xml")]
    domain: Annotated[Name, Example("example.com")]
    domain_id: Annotated[UUID, Example(Shown.domain_id)]
    type: Annotated[SitemapTypeWord | None, Example("standard")]
    discovery_method: Annotated[str, one_of(DiscoveryMethod), Example("robots_txt")]
    status: Annotated[str, one_of(SitemapStatus), Example("completed")]
    job_id: Annotated[UUID, Example(Shown.job_id)]
    created_by: Annotated[UUID, Example(Shown.user_id)]
    created_at: Annotated[datetime, Example(Shown.noon)]
    last_read_at: Annotated[datetime | None, Example(Shown.later)]
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
    limited: Annotated[bool, Example(False)] = Field(
        description="Whether the last scan that read it reached its maximum number of URLs in it. "
        "Its status remains `completed`."
    )


class SitemapsQuery(QueryShape):
    """Which documents to list."""

    type: Literal["standard", "index", "text", "rss", "atom"] | None = None
    status: Annotated[
        Literal["pending", "completed", "failed", "complete", "error"] | None, LOWERED
    ] = Field(None, description="`complete` and `error` are accepted for `completed` and `failed`.")


class UrlHistoryAnswer(PageAnswer[ChangeAnswer]):
    """The changes of one URL, newest first."""

    entries: Annotated[list[UrlAnswer], declared(maxItems=MAX_LIMIT)] = Field(
        description="Only on the first page: the URL in each sitemap that lists or listed it."
    )
    entries_cursor: Annotated[str, declared(maxLength=MAX_CURSOR_CHARS)] | None = Field(
        description="Not null if further sitemaps may list the URL, even if `entries` is empty: "
        "continue with `GET /api/v3/domains/{domain}/urls?url=…&state=all&cursor=…`."
    )


class UrlHistoryQuery(QueryShape):
    """The URL whose history to show."""

    url: str = Field(
        min_length=1,
        max_length=MAX_ADDRESS_CHARS,
        pattern=NO_NUL,
        description="The URL, exactly as listed.",
    )
