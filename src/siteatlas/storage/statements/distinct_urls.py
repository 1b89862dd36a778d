"""Counts the different URLs that a site lists in all its documents.

Publications usually know the number from that of the scan before and the changes since. It is
counted only for a first scan and after scans that were not published; in parts, by ranges of
hashes, so that each statement is short however large the site is.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from sqlalchemy import BigInteger, Uuid, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.tables import SITEMAP_URLS, SITEMAPS

URLS_PER_PART = 2_000_000
LOWEST_HASH, HIGHEST_HASH = -(2**63), 2**63 - 1
COUNT_PART = (
    select(func.count(SITEMAP_URLS.c.url_hash.distinct()))
    .join(SITEMAPS, SITEMAPS.c.id == SITEMAP_URLS.c.sitemap_id)
    .where(
        SITEMAPS.c.domain_id == bindparam("of_domain", type_=Uuid()),
        SITEMAP_URLS.c.url_hash.between(
            bindparam("first", type_=BigInteger()), bindparam("last", type_=BigInteger())
        ),
        SITEMAP_URLS.c.removed_at.is_(None),
    )
)


async def count_distinct_urls(session: AsyncSession, domain_id: UUID, url_count: int) -> int:
    """How many different URLs a site lists; `url_count` is about how many listings it has."""
    total = 0
    for first, last in hash_ranges(url_count // URLS_PER_PART + 1):
        values = {"of_domain": domain_id, "first": first, "last": last}
        total += int(await session.scalar(COUNT_PART, values) or 0)
    return total


def hash_ranges(parts: int) -> Iterator[tuple[int, int]]:
    """All hashes in ranges of the same length, each with its first and its last hash."""
    length = (HIGHEST_HASH - LOWEST_HASH) // parts + 1
    for first in range(LOWEST_HASH, HIGHEST_HASH + 1, length):
        yield first, min(first + length - 1, HIGHEST_HASH)
