"""Finds the entries that other documents of a site have for the URLs of a batch of changes.

No index leads from a URL to its documents: it would make each new URL a tenth larger and slower to
store. The primary key is probed once per change and document, or all keys of the site are read
once, whichever is less work. `change_classification` owns what is concluded from the entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Uuid, and_, bindparam, func, select, true
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.selectable import CTE

from siteatlas.storage.tables import SITEMAP_URLS, SITEMAPS

# Reading a key in order takes about a third of the time of a probe.
KEYS_PER_PROBE = 3
CHANGES_PER_PROBED_BATCH = 5_000
# All keys are read for each batch, so its size is only limited by the length of a transaction.
CHANGES_PER_READ = 50_000

DOMAIN = bindparam("of_domain", type_=Uuid())
SITE_SIZE = select(
    func.count().label("documents"), func.coalesce(func.sum(SITEMAPS.c.url_count), 0).label("urls")
).where(SITEMAPS.c.domain_id == DOMAIN)


class Lookup(StrEnum):
    """How the other entries are found."""

    PROBE_KEYS = "probe_keys"
    READ_KEYS = "read_keys"

    @property
    def changes_per_batch(self) -> int:
        return CHANGES_PER_PROBED_BATCH if self is Lookup.PROBE_KEYS else CHANGES_PER_READ


@dataclass(frozen=True, slots=True)
class SiteSize:
    """How many documents and entries of a site are stored."""

    documents: int
    urls: int

    def lookup(self, changes: int) -> Lookup:
        """The lookup that is less work for a number of changes."""
        probes = changes * self.documents
        reads = -(-changes // CHANGES_PER_READ)
        return (
            Lookup.READ_KEYS if probes * KEYS_PER_PROBE > reads * self.urls else Lookup.PROBE_KEYS
        )


async def load_site_size(session: AsyncSession, domain_id: UUID) -> SiteSize:
    """The size of a site, from the counters of its documents."""
    row = (await session.execute(SITE_SIZE, {"of_domain": domain_id})).one()
    return SiteSize(row.documents, int(row.urls))


def other_entries(batch: CTE, lookup: Lookup) -> CTE:
    """The keys of a batch with the documents that have an entry of the same URL, as `other_id`.

    `batch` has the columns sitemap_id, url_hash and chosen; only the chosen ones are looked up.
    """
    documents = select(SITEMAPS.c.id).where(SITEMAPS.c.domain_id == DOMAIN).cte("documents")
    find = _probe_keys if lookup is Lookup.PROBE_KEYS else _read_keys
    return find(batch, documents)


def _probe_keys(batch: CTE, documents: CTE) -> CTE:
    """One probe of the primary key per change and document: LIMIT rules out any other plan."""
    probe = (
        select(SITEMAP_URLS.c.sitemap_id)
        .where(
            SITEMAP_URLS.c.sitemap_id == documents.c.id,
            SITEMAP_URLS.c.url_hash == batch.c.url_hash,
        )
        .limit(1)
        .correlate(batch, documents)
        .lateral("probe")
    )
    return (
        select(batch.c.sitemap_id, batch.c.url_hash, probe.c.sitemap_id.label("other_id"))
        .select_from(batch)
        .join(documents, documents.c.id != batch.c.sitemap_id)
        .join(probe, true())
        .where(batch.c.chosen)
        .cte("entries")
    )


def _read_keys(batch: CTE, documents: CTE) -> CTE:
    """All keys of each document in order; IS TRUE makes the condition a lookup in a hash table."""
    wanted = SITEMAP_URLS.c.url_hash.in_(select(batch.c.url_hash).where(batch.c.chosen))
    keys = (
        select(SITEMAP_URLS.c.url_hash)
        .where(SITEMAP_URLS.c.sitemap_id == documents.c.id, wanted.is_(true()))
        .offset(0)
        .correlate(documents)
        .lateral("keys")
    )
    found = (
        select(documents.c.id.label("other_id"), keys.c.url_hash)
        .select_from(documents)
        .join(keys, true())
        .cte("found")
        .prefix_with("MATERIALIZED", dialect="postgresql")
    )
    same: Any = and_(found.c.url_hash == batch.c.url_hash, found.c.other_id != batch.c.sitemap_id)
    return (
        select(batch.c.sitemap_id, batch.c.url_hash, found.c.other_id)
        .select_from(batch)
        .join(found, same)
        .where(batch.c.chosen)
        .cte("entries")
    )
