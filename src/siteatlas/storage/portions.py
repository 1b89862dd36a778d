"""One portion of a scan's rows: gathered while a site is read, written in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import func
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.sitemaps import (
    close_sitemap_scans,
    insert_sitemaps,
    link_sitemaps,
    mark_pending,
    record_candidates,
    record_origin,
    update_sitemap,
)
from siteatlas.storage.urls import UrlRows, count_urls, insert_urls, update_urls


@dataclass(slots=True)
class Portion:
    """Rows that wait to be written. `closed` are the documents whose reading ended."""

    new_sitemaps: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    changed_sitemaps: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    links: set[tuple[UUID, UUID]] = field(default_factory=set)
    pending: list[UUID] = field(default_factory=list)
    closed: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    candidates: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    origin: str | None = None
    new_urls: UrlRows = field(default_factory=UrlRows)
    changed_urls: UrlRows = field(default_factory=UrlRows)

    @property
    def url_rows(self) -> int:
        """How many listings wait to be written."""
        return len(self.new_urls) + len(self.changed_urls)

    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (
            self.url_rows
            or self.new_sitemaps
            or self.changed_sitemaps
            or self.links
            or self.pending
            or self.closed
            or self.candidates
            or self.origin
        )


async def write_portion(
    session: AsyncSession, portion: Portion, *, scan_id: int, domain_id: UUID
) -> None:
    """Write listings first, then the documents with counts taken from the rows just written."""
    await insert_urls(session, portion.new_urls)
    await update_urls(session, portion.changed_urls)
    counts = await count_urls(session, list(portion.closed)) if portion.closed else {}
    await _write_sitemaps(session, portion, counts)
    await link_sitemaps(session, sorted(portion.links))
    await mark_pending(session, scan_id, [i for i in portion.pending if i not in portion.closed])
    await close_sitemap_scans(
        session,
        scan_id,
        [row | {"url_count": counts[key]} for key, row in portion.closed.items()],
    )
    await record_candidates(session, list(portion.candidates.values()))
    if portion.origin is not None:
        await record_origin(session, domain_id, portion.origin)


async def _write_sitemaps(
    session: AsyncSession, portion: Portion, counts: Mapping[UUID, int]
) -> None:
    for values in (portion.new_sitemaps, portion.changed_sitemaps):
        for sitemap_id, row in values.items():
            if sitemap_id in counts:
                row |= {"url_count": counts[sitemap_id], "last_read_at": func.now()}
    for rows in _alike(portion.new_sitemaps):
        await insert_sitemaps(session, rows)
    for sitemap_id, row in sorted(portion.changed_sitemaps.items()):
        if row:
            await update_sitemap(session, sitemap_id, row)


def _alike(rows: Mapping[UUID, dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Rows grouped by the columns they fill, since one statement fills the same ones for all."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for sitemap_id, row in rows.items():
        groups.setdefault(tuple(sorted(row)), []).append({"id": sitemap_id, **row})
    return list(groups.values())
