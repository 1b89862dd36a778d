"""Write statement that watches many sites at once. The caller owns the transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import case, func, literal_column
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.net.address import WebAddress
from siteatlas.storage.models import Domain
from siteatlas.storage.statements.domains import base_url_of, hours_from_now

# A row that was inserted, not updated, has no version before it.
IS_NEW: Any = literal_column("domains.xmax = 0")
ALL_TAGS: Any = literal_column(
    "ARRAY(SELECT DISTINCT tag FROM unnest(domains.tags || excluded.tags) AS tag ORDER BY tag)"
)


@dataclass(frozen=True, slots=True)
class ImportedSite:
    """A site of a list: its address, and its own interval and tags if the list has them."""

    address: WebAddress
    scan_interval_hours: float | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WatchedSite:
    """A site that is watched from now on; `is_new` if it was not stored before."""

    id: UUID
    domain: str
    max_pages: int | None
    is_new: bool


async def watch_domains(
    session: AsyncSession,
    sites: Sequence[ImportedSite],
    *,
    created_by: UUID,
    default_interval_hours: float,
) -> list[WatchedSite]:
    """Watch these sites, each of which has another domain; known ones keep the tags they have.

    In the order of their names, so that two lists of the same sites cannot wait for each other.
    """
    if not sites:
        return []
    rows = [
        _row(site, created_by, default_interval_hours)
        for site in sorted(sites, key=lambda site: site.address.domain)
    ]
    new = insert(Domain).values(rows)
    interval = func.coalesce(
        new.excluded.scan_interval_hours, Domain.scan_interval_hours, default_interval_hours
    )
    statement = new.on_conflict_do_update(
        index_elements=[Domain.domain],
        set_={
            "updated_at": func.now(),
            # Whoever watches a site that nobody watches becomes its owner.
            "created_by": case((Domain.watched, Domain.created_by), else_=new.excluded.created_by),
            "watched": True,
            "paused": False,
            "next_scan_at": hours_from_now(interval),
            "scan_interval_hours": func.coalesce(
                new.excluded.scan_interval_hours, Domain.scan_interval_hours
            ),
            "tags": ALL_TAGS,
        },
    ).returning(Domain.id, Domain.domain, Domain.max_pages, IS_NEW.label("is_new"))
    return [WatchedSite(*row) for row in await session.execute(statement)]


def _row(site: ImportedSite, created_by: UUID, default_interval_hours: float) -> dict[str, Any]:
    """The row of a site that is not stored yet."""
    interval = func.coalesce(site.scan_interval_hours, default_interval_hours)
    return {
        "domain": site.address.domain,
        "base_url": base_url_of(site.address),
        "created_by": created_by,
        "watched": True,
        "next_scan_at": hours_from_now(interval),
        "scan_interval_hours": site.scan_interval_hours,
        "tags": list(site.tags),
    }
