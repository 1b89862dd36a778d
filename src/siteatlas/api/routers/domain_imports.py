"""Imports a list of sites: all that can be watched are, the others are reported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastapi import APIRouter

from siteatlas.access.identity import CurrentIdentity, Identity
from siteatlas.access.limits import CurrentLimits
from siteatlas.access.marks import SCAN
from siteatlas.access.ownership import require_right_to_watch
from siteatlas.api.body_limits import KIB, ParsedBodyRoute
from siteatlas.api.context import NO_WORKER, Context
from siteatlas.api.openapi import problems
from siteatlas.api.routers.domains import PREFIX
from siteatlas.api.schemas.imports import ImportAnswer, ImportFault, ImportRequest
from siteatlas.api.sessions import WriteSession
from siteatlas.errors import InputError, NotOwner, SiteatlasError, TooManyTags
from siteatlas.logs import get_logger
from siteatlas.net.address import parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.queue.site_import import SITES_PER_STEP, ImportCounts, import_sites, without_repeats
from siteatlas.storage.models import Domain
from siteatlas.storage.session import AsyncSession
from siteatlas.storage.statements.domain_imports import ImportedSite
from siteatlas.storage.statements.domains import find_domains
from siteatlas.tags import parse_tags

PATH = f"{PREFIX}/import"
LARGER_BODIES = {PATH: 2048 * KIB}
MAX_SHOWN_CHARS = 300

log = get_logger("api")
router = APIRouter(tags=["domains"], route_class=ParsedBodyRoute)


@router.post(
    PATH,
    dependencies=[SCAN],
    summary="Watch many sites",
    response_model=ImportAnswer,
    responses=problems(409),
)
async def import_domains(
    body: ImportRequest,
    context: Context,
    identity: CurrentIdentity,
    limits: CurrentLimits,
    session: WriteSession,
) -> ImportAnswer:
    """Watch all sites of a list that can be watched, queue their scans, and report the others.

    The list is stored in several transactions; importing it again does no harm. The rest of it is
    refused if other requests have filled the queue of the user meanwhile.
    """
    faults = ImportFaults(body)
    sites = without_repeats(faults.usable(body, context.policy))
    counts, worker_running = ImportCounts(), True
    async with limits.queue_room.turn(identity) as turn:
        await turn.require(len(sites))
        async for first in turn.each(range(0, len(sites), SITES_PER_STEP)):
            step = sites[first : first + SITES_PER_STEP]
            async with session.begin():
                await turn.reserve(session, len(step))
                known = await find_domains(session, [site.address.domain for site in step])
                permitted = faults.permitted(step, known, identity)
                step_counts = await _import(session, permitted, context, identity)
                worker_running = await context.has_live_worker(session)
            counts = counts.plus(step_counts)
    faults.add_over_tagged(counts.over_tagged)
    context.wake_consumer()
    log.info("domains_imported", added=counts.added, known=counts.known, errors=len(faults.found))
    return ImportAnswer(
        added=counts.added,
        known=counts.known,
        errors=faults.in_order(),
        warning=None if worker_running else NO_WORKER,
    )


async def _import(
    session: AsyncSession, sites: Sequence[ImportedSite], context: Context, identity: Identity
) -> ImportCounts:
    """Store some sites of a list, and queue their scans."""
    return await import_sites(
        session,
        sites,
        created_by=identity.user_id,
        default_interval_hours=context.settings.scan_interval_hours,
        max_attempts=context.settings.max_attempts,
    )


class ImportFaults:
    """The sites of a list that are not added, and why."""

    def __init__(self, body: ImportRequest) -> None:
        self.found: list[ImportFault] = []
        self._texts = [site.domain for site in body.sites]
        self._positions: dict[str, int] = {}

    def usable(self, body: ImportRequest, policy: EgressPolicy) -> list[ImportedSite]:
        """The sites of the list whose address and tags are valid."""
        usable: list[ImportedSite] = []
        for position, site in enumerate(body.sites):
            try:
                address = parse_site(site.domain)
                policy.check(address)
                tags = tuple(parse_tags([*site.tags, *body.tags]))
            except InputError as error:
                self._add(position, error)
                continue
            self._positions.setdefault(address.domain, position)
            usable.append(ImportedSite(address, site.scan_interval_hours, tags))
        return usable

    def permitted(
        self, sites: Iterable[ImportedSite], known: Sequence[Domain], identity: Identity
    ) -> list[ImportedSite]:
        """The sites that the user may watch in this way."""
        by_name = {domain.domain: domain for domain in known}
        permitted: list[ImportedSite] = []
        for site in sites:
            name = site.address.domain
            try:
                require_right_to_watch(
                    identity,
                    by_name.get(name),
                    scan_interval_hours=site.scan_interval_hours,
                    tags=site.tags,
                )
            except NotOwner as error:
                self._add(self._positions[name], error)
            else:
                permitted.append(site)
        return permitted

    def add_over_tagged(self, domains: Iterable[str]) -> None:
        """Note sites that would have more tags than allowed."""
        for domain in domains:
            self._add(self._positions[domain], TooManyTags())

    def in_order(self) -> list[ImportFault]:
        """The faults in the order of the list."""
        return sorted(self.found, key=lambda fault: fault.position)

    def _add(self, position: int, error: SiteatlasError) -> None:
        """Note a site that is not added."""
        shown = self._texts[position][:MAX_SHOWN_CHARS]
        self.found.append(
            ImportFault(position=position, domain=shown, error_code=error.code, error=error.message)
        )
