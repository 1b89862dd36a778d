"""Imports a list of sites: watches all of them and queues a scan of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.queue.new_job import NewJob, Priority
from siteatlas.queue.submission import create_many, scan_address
from siteatlas.settings import DEFAULT_MAX_ATTEMPTS
from siteatlas.storage.statements.domain_imports import ImportedSite, watch_domains
from siteatlas.storage.statements.domains import DEFAULT_INTERVAL_HOURS

# Sites of one transaction: locks are held briefly, and others get their turn in between.
SITES_PER_STEP = 500


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """How many sites of a list were new, and how many were known.

    `over_tagged` are the domains of those that were left as they are, because they would have more
    tags than allowed.
    """

    added: int = 0
    known: int = 0
    over_tagged: tuple[str, ...] = ()

    def plus(self, other: ImportCounts) -> ImportCounts:
        """The counts of two parts of a list."""
        over_tagged = (*self.over_tagged, *other.over_tagged)
        return ImportCounts(self.added + other.added, self.known + other.known, over_tagged)


async def import_sites(
    session: AsyncSession,
    sites: Sequence[ImportedSite],
    *,
    created_by: UUID,
    default_interval_hours: float = DEFAULT_INTERVAL_HOURS,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
) -> ImportCounts:
    """Watch up to `SITES_PER_STEP` sites, each of another domain, and queue or join their scans."""
    addresses = {site.address.domain: site.address for site in sites}
    watched = await watch_domains(
        session, sites, created_by=created_by, default_interval_hours=default_interval_hours
    )
    jobs = [
        NewJob(
            domain=site.domain,
            base_url=scan_address(addresses[site.domain]),
            created_by=created_by,
            domain_id=site.id,
            max_pages=site.max_pages,
            priority=Priority.BATCH,
            max_attempts=max_attempts,
        )
        for site in sorted(watched, key=lambda site: site.domain)
    ]
    if jobs:
        await create_many(session, jobs)
    added = sum(site.is_new for site in watched)
    over_tagged = addresses.keys() - {site.domain for site in watched}
    return ImportCounts(added, len(watched) - added, tuple(sorted(over_tagged)))


def without_repeats(sites: Sequence[ImportedSite]) -> list[ImportedSite]:
    """One entry for each domain: the last interval that is given for it, and all its tags.

    Its address is the last one that has a scheme, or the last one.
    """
    by_domain: dict[str, ImportedSite] = {}
    for site in sites:
        before = by_domain.pop(site.address.domain, site)
        interval = site.scan_interval_hours
        keeps_address = before.address.scheme_given and not site.address.scheme_given
        by_domain[site.address.domain] = ImportedSite(
            before.address if keeps_address else site.address,
            before.scan_interval_hours if interval is None else interval,
            tuple(sorted({*before.tags, *site.tags})),
        )
    return list(by_domain.values())
