"""Filters of lists of URLs, and the SQL conditions that they mean.

`url` and `sitemap` are found through an index. Every other filter looks at each row, of which
`urls.py` examines a bounded number per request.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, assert_never
from uuid import UUID

from sqlalchemy import ColumnElement, and_, func, literal, select, true
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import SitemapNotFound
from siteatlas.storage.models import Sitemap


class ListingState(StrEnum):
    """Which URLs to show: listed URLs, removed URLs, or all."""

    LISTED = "listed"
    REMOVED = "removed"
    ALL = "all"


class UrlExtra(StrEnum):
    """What a sitemap may list for a URL beyond its dates."""

    IMAGES = "images"
    NEWS = "news"
    VIDEO = "video"
    ALTERNATES = "alternates"


# The keys under which `extras` holds them.
EXTRA_KEYS = {
    UrlExtra.IMAGES: "images",
    UrlExtra.NEWS: "news",
    UrlExtra.VIDEO: "videos",
    UrlExtra.ALTERNATES: "alternates",
}


@dataclass(frozen=True, slots=True)
class UrlFilter:
    """What to show. A time range includes its start and excludes its end.

    `contains` ignores case, `prefix` and `url` do not. `sitemap` is the id or the URL of a
    document. A URL is shown if it has everything that `has` names.
    """

    contains: str | None = None
    state: ListingState = ListingState.LISTED
    prefix: str | None = None
    url: str | None = None
    sitemap: str | None = None
    lastmod_from: datetime | None = None
    lastmod_to: datetime | None = None
    first_seen_from: datetime | None = None
    first_seen_to: datetime | None = None
    has: frozenset[UrlExtra] = frozenset()

    @property
    def key(self) -> tuple[object, ...]:
        """The values by which a cursor recognizes its list."""
        values = (getattr(self, field.name) for field in fields(self))
        return tuple(sorted(v) if isinstance(v, frozenset) else v for v in values)

    @property
    def is_unfiltered(self) -> bool:
        """Whether it shows all listed URLs of its sitemaps, whose number is known."""
        return UrlFilter(sitemap=self.sitemap) == self

    @property
    def shows_most_rows(self) -> bool:
        """Whether it is likely to show the rows that it examines."""
        return UrlFilter(sitemap=self.sitemap, state=self.state) == self


def is_in_sitemap(wanted: UrlFilter) -> ColumnElement[bool]:
    """SQL condition: a document is the one of the filter, if it names one."""
    if wanted.sitemap is None:
        return true()
    try:
        return Sitemap.id == UUID(wanted.sitemap)
    except ValueError:
        return Sitemap.url == wanted.sitemap


async def require_sitemap(session: AsyncSession, wanted: UrlFilter, domain_id: UUID | None) -> None:
    """Raise SitemapNotFound if the filter names a document that is not stored for the site."""
    if wanted.sitemap is None:
        return
    of_site = true() if domain_id is None else Sitemap.domain_id == domain_id
    statement = select(Sitemap.id).where(of_site, is_in_sitemap(wanted)).limit(1)
    if (await session.execute(statement)).first() is None:
        raise SitemapNotFound(
            "There is no sitemap with this id or URL. To list them, run: siteatlas sitemaps SITE"
        )


def is_hit(row: Any, wanted: UrlFilter) -> ColumnElement[bool]:
    """SQL condition: a row of stored URLs matches the filter."""
    conditions = [
        *_text_conditions(row, wanted),
        *_time_conditions(row.lastmod, wanted.lastmod_from, wanted.lastmod_to),
        *_time_conditions(row.first_seen_at, wanted.first_seen_from, wanted.first_seen_to),
        *(_has_key(row.extras, EXTRA_KEYS[extra]) for extra in sorted(wanted.has)),
    ]
    match wanted.state:
        case ListingState.LISTED:
            conditions.append(row.removed_at.is_(None))
        case ListingState.REMOVED:
            conditions.append(row.removed_at.is_not(None))
        case ListingState.ALL:
            pass
        case _:
            assert_never(wanted.state)
    return and_(true(), *conditions)


def _text_conditions(row: Any, wanted: UrlFilter) -> list[ColumnElement[bool]]:
    """The conditions of a filter for the text of a URL; wildcards have no meaning."""
    conditions: list[ColumnElement[bool]] = []
    if wanted.contains:
        conditions.append(func.strpos(func.lower(row.url), func.lower(wanted.contains)) > 0)
    if wanted.prefix:
        conditions.append(func.starts_with(row.url, wanted.prefix))
    if wanted.url is not None:
        conditions.append(row.url == wanted.url)
    return conditions


def _time_conditions(
    column: ColumnElement[datetime], start: datetime | None, end: datetime | None
) -> list[ColumnElement[bool]]:
    """The conditions of a filter for a range of time; no time is in no range."""
    conditions: list[ColumnElement[bool]] = []
    if start is not None:
        conditions.append(column >= start)
    if end is not None:
        conditions.append(column < end)
    return [func.coalesce(condition, False) for condition in conditions]


def _has_key(extras: ColumnElement[Any], key: str) -> ColumnElement[bool]:
    """SQL condition: a JSON column has a key; false where it is null."""
    found = extras.cast(JSONB).has_key(literal(key))
    return func.coalesce(found, False)
