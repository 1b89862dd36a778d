"""Read statements for the history of one URL: where it is or was listed, and what changed.

Both are found through indexes. Changes that the feed no longer retains are not in the history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from sqlalchemy import Select, literal, null, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.change_views import ChangeView, change_view
from siteatlas.insights.page_reading import read_page
from siteatlas.insights.pages import MAX_LIMIT, CursorScope, Page, page_size, parse_bigint
from siteatlas.insights.url_filters import ListingState, UrlFilter
from siteatlas.insights.urls import UrlView, list_domain_urls
from siteatlas.storage.hashes import url_hash
from siteatlas.storage.tables import DOMAINS, SCANS, SITEMAPS, URL_CHANGES

CHANGE_COLUMNS = (
    "scan_id",
    "sitemap_id",
    "url_hash",
    "kind",
    "url",
    "before",
    "after",
    "previous_sitemap_id",
    "evidence",
    "not_before",
    "not_after",
)


@dataclass(frozen=True, slots=True)
class UrlHistoryPage(Page[ChangeView]):
    """The changes of one URL, newest first; on the first page also its entries in documents.

    `entries_cursor` is that of `list_domain_urls` with this URL and all states; None if no other
    document can have an entry. Otherwise even a URL without entries may be listed.
    """

    entries: Sequence[UrlView] = ()
    entries_cursor: str | None = None


async def list_url_history(
    session: AsyncSession,
    domain_id: UUID,
    url: str,
    *,
    limit: int | None = None,
    cursor: str | None = None,
) -> UrlHistoryPage:
    """What is stored about a URL of a site, exactly as listed."""
    scope = CursorScope("url history", (domain_id, url))
    before = scope.read(cursor, _parse_history_position)
    statement = _select_changes(domain_id, url)
    if before is not None:
        position = tuple_(SCANS.c.published_seq, URL_CHANGES.c.sitemap_id)
        statement = statement.where(position < tuple_(*map(literal, before)))
    names = [str(column.key) for column in statement.selected_columns]
    page = await read_page(
        session,
        statement,
        page_size(limit),
        lambda *row: change_view(SimpleNamespace(**dict(zip(names, row, strict=True)))),
        lambda row: scope.write(row.number, row.sitemap_id),
    )
    if cursor is not None:
        return UrlHistoryPage(page.items, page.next_cursor)
    wanted = UrlFilter(url=url, state=ListingState.ALL)
    found = await list_domain_urls(session, domain_id, wanted, limit=MAX_LIMIT)
    return UrlHistoryPage(
        page.items, page.next_cursor, entries=found.items, entries_cursor=found.next_cursor
    )


def _select_changes(domain_id: UUID, url: str) -> Select[Any]:
    """The published changes of a URL in all documents of a site, newest first."""
    changes, previous = URL_CHANGES.c, SITEMAPS.alias("previous")
    return (
        select(
            SCANS.c.published_seq.label("number"),
            null().label("event_id"),
            DOMAINS.c.domain,
            SITEMAPS.c.url.label("sitemap"),
            previous.c.url.label("previous_sitemap"),
            null().label("data"),
            *(changes[name] for name in CHANGE_COLUMNS),
        )
        .select_from(SITEMAPS)
        .join(DOMAINS, DOMAINS.c.id == SITEMAPS.c.domain_id)
        .join(URL_CHANGES, changes.sitemap_id == SITEMAPS.c.id)
        .join(SCANS, SCANS.c.id == changes.scan_id)
        .outerjoin(previous, previous.c.id == changes.previous_sitemap_id)
        .where(
            SITEMAPS.c.domain_id == domain_id,
            changes.url_hash == url_hash(url),
            changes.url == url,
            SCANS.c.published_seq.is_not(None),
        )
        .order_by(SCANS.c.published_seq.desc(), changes.sitemap_id.desc())
    )


def _parse_history_position(parts: Sequence[str]) -> tuple[int, UUID]:
    """The position in the history of a URL, from the parts of a pagination cursor."""
    number, sitemap_id = parts
    return parse_bigint(number), UUID(sitemap_id)
