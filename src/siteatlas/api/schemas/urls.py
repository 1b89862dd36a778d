"""Models of stored URLs, and the filters of their lists."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from siteatlas.api.schemas.base import LOWERED, NO_NUL, Moment, QueryShape, TagFilter, list_pattern
from siteatlas.api.schemas.changes import KindsFilter
from siteatlas.catalog.url_lists import URL_SORTS, ListingState, PointInTime, UrlExtra, UrlFilter
from siteatlas.catalog.views import MAX_ADDRESS_CHARS, MAX_BIGINT
from siteatlas.errors import InputError
from siteatlas.export.encoding import ChangeColumns, Exported, ExportFormat


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
    """Which URLs of a site to list, when, and in which order."""

    sort: str | None = Field(
        None,
        max_length=16,
        pattern=URL_SORTS,
        description="With a minus sign, the last or the latest first; without `lastmod` at the "
        "end. More than 20,000 listings are an expensive read, more than 100,000 are not sorted.",
    )


class ExportQuery(PastMoment, UrlFilters, KindsFilter):
    """What to export, and in which format. The filters of URLs do not apply to changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    what: Exported = Field(
        Exported.URLS,
        description="The URLs, or their changes. `after`, `until`, `kinds` and `columns` apply to "
        "changes only.",
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
    until: int | None = Field(
        None,
        ge=0,
        le=MAX_BIGINT,
        description="Only changes up to this number. Without it, all that are published.",
    )
    columns: ChangeColumns = Field(
        ChangeColumns.ALL,
        description="`short`: a CSV file of changes for people, with when, kind, url, sitemap, "
        "lastmod_before and lastmod_after; each scan is sorted by kind and URL, one with more than "
        "5,000 changes in several parts.",
    )
    name: str | None = Field(
        None,
        max_length=200,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="The name of the file, to which its ending is added. Without it, the site and "
        "`what`.",
    )


class AllExportQuery(ExportQuery, TagFilter):
    """What to export of all sites, or of those with a tag."""


class SitemapsQuery(QueryShape):
    """Which documents to list."""

    type: Literal["standard", "index", "text", "rss", "atom"] | None = None
    status: Annotated[
        Literal["pending", "completed", "failed", "complete", "error"] | None, LOWERED
    ] = Field(None, description="`complete` and `error` are accepted for `completed` and `failed`.")


class UrlHistoryQuery(QueryShape):
    """The URL whose history to show."""

    url: str = Field(
        min_length=1,
        max_length=MAX_ADDRESS_CHARS,
        pattern=NO_NUL,
        description="The URL, exactly as listed.",
    )
