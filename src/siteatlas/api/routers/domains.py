"""Sites: list, watch, change, remove; release their held removals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response, status

from siteatlas.access.identity import (
    CurrentIdentity,
    Identity,
    require_owner,
    require_right_to_watch,
)
from siteatlas.access.limits import READ, SCAN, CurrentLimits
from siteatlas.api.context import (
    NO_WORKER,
    STATUS_PATH,
    Context,
    ReadSession,
    WriteSession,
    parse_site_field,
)
from siteatlas.api.limits import ParsedBodyRoute
from siteatlas.api.openapi import LOCATION, problems
from siteatlas.api.schemas.domains import (
    DomainAdded,
    DomainChange,
    DomainRequest,
    DomainsQuery,
    ImportAnswer,
    ImportFault,
    ImportRequest,
    ReleaseAnswer,
    SiteHeadersAnswer,
    SiteHeadersRequest,
)
from siteatlas.catalog.domains import (
    DomainView,
    ImportedSite,
    ListedDomain,
    change_domain,
    domain_view,
    find_domain,
    find_domain_view,
    find_domains,
    find_site_headers,
    list_domains,
    lock_domain,
    register_domain,
    set_site_headers,
)
from siteatlas.catalog.paging import Page
from siteatlas.catalog.views import MAX_ADDRESS_CHARS, extended
from siteatlas.errors import (
    InputError,
    NotOwner,
    SiteatlasError,
    TooManyTags,
)
from siteatlas.logs import get_logger
from siteatlas.net.address import WebAddress, parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.gate import OriginHeaders
from siteatlas.queue.fence import SubmittedJob
from siteatlas.queue.operator_actions import release_removals, remove_domain_and_jobs
from siteatlas.queue.submission import (
    SITES_PER_STEP,
    ImportCounts,
    import_sites,
    watch_site,
    without_repeats,
)
from siteatlas.storage.models import Domain
from siteatlas.storage.session import AsyncSession, get_session, retry_when_busy
from siteatlas.text import parse_tags

PREFIX = "/api/v3/domains"

log = get_logger("api")
router = APIRouter(
    prefix=PREFIX,
    tags=["domains"],
    route_class=ParsedBodyRoute,
)

DomainName = Annotated[
    str,
    Path(max_length=MAX_ADDRESS_CHARS, description="The site's host.", examples=["example.com"]),
]


@router.get(
    "",
    dependencies=[READ],
    summary="List sites",
    response_model=Page[DomainView],
    responses=problems(),
)
async def get_domains(
    query: Annotated[DomainsQuery, Query()], session: ReadSession
) -> Page[ListedDomain]:
    """The sites that match, ordered by name unless `sort` says otherwise."""
    return await list_domains(
        session,
        watched=query.watched,
        state=query.state,
        contains=query.contains,
        tag=query.wanted_tag,
        sort=query.sort,
        **query.page,
    )


@router.post(
    "",
    dependencies=[SCAN],
    summary="Watch a site",
    status_code=status.HTTP_201_CREATED,
    responses={
        201: LOCATION,
        200: {"model": DomainAdded, "description": "The site was already known."},
        **problems(409),
    },
)
async def add_domain(
    body: DomainRequest,
    response: Response,
    context: Context,
    identity: CurrentIdentity,
    limits: CurrentLimits,
    session: WriteSession,
) -> DomainAdded:
    """Register and watch a site, and queue a scan. A known site is watched again.

    A known site keeps its owner. How it is watched is changed by the owner, or with `admin`.
    """
    address = parse_site_field("#/domain", body.domain, context.policy)
    tags = parse_tags(body.tags)
    queue_turn = limits.queue_room.turn(identity, is_needed=body.watch)
    async with queue_turn as turn, session.begin():
        if body.watch:
            await turn.reserve(session)
        known = await find_domain(session, address.domain)
        require_right_to_watch(
            identity,
            known,
            scan_interval_hours=body.scan_interval_hours,
            max_pages=body.url_limit,
            tags=tags,
        )
        domain, job = await _register(session, address, body, tags, context, identity)
        view = domain_view(domain)
        worker_running = job is None or await context.has_live_worker(session)
    context.wake_consumer()
    log.info("domain_registered", domain=view.domain, watched=view.watched)
    if known is not None:
        response.status_code = status.HTTP_200_OK
    response.headers["Location"] = f"{PREFIX}/{view.domain}"
    return extended(
        DomainAdded,
        view,
        job_id=None if job is None else job.job_id,
        status_url=None if job is None else STATUS_PATH.format(job_id=job.job_id),
        warning=None if worker_running else NO_WORKER,
    )


async def _register(
    session: AsyncSession,
    address: WebAddress,
    body: DomainRequest,
    tags: list[str],
    context: Context,
    identity: Identity,
) -> tuple[Domain, SubmittedJob | None]:
    if not body.watch:
        domain = await register_domain(
            session,
            address,
            created_by=identity.user_id,
            max_pages=body.url_limit,
            scan_interval_hours=body.scan_interval_hours,
            tags=tags,
        )
        return domain, None
    return await watch_site(
        session,
        address,
        created_by=identity.user_id,
        scan_interval_hours=body.scan_interval_hours,
        default_interval_hours=context.settings.scan_interval_hours,
        max_pages=body.url_limit,
        max_attempts=context.settings.max_attempts,
        tags=tags,
    )


@router.get(
    "/{domain}",
    dependencies=[READ],
    summary="Show a site",
    responses=problems(404),
)
async def get_domain(domain: DomainName, session: ReadSession) -> DomainView:
    """What is stored about one site: its settings, counters and last scan."""
    return await find_domain_view(session, domain)


@router.patch(
    "/{domain}",
    dependencies=[SCAN],
    summary="Change a site",
    responses=problems(404),
)
async def patch_domain(
    domain: DomainName,
    body: DomainChange,
    context: Context,
    identity: CurrentIdentity,
    session: WriteSession,
) -> DomainView:
    """Watch or pause a site, or change its scan interval, URL limit or tags.

    A new interval counts from the last scan, or from now if there was none.
    """
    async with session.begin():
        found = await lock_domain(session, domain, partial(require_owner, identity))
        await change_domain(session, found, **body.changes())
        view = domain_view(found)
    context.notify_scheduler()
    log.info("domain_changed", domain=view.domain)
    return view


@router.get(
    "/{domain}/headers",
    dependencies=[READ],
    summary="Show the request headers of a site",
    responses=problems(404),
)
async def get_site_headers(domain: DomainName, session: ReadSession) -> SiteHeadersAnswer | None:
    """The names of the headers that scans of a site send, and the origin that gets them."""
    site = await find_domain_view(session, domain)
    return _shown_headers(await find_site_headers(session, site.id))


@router.put(
    "/{domain}/headers",
    dependencies=[SCAN],
    summary="Set the request headers of a site",
    responses=problems(404),
)
async def put_site_headers(
    domain: DomainName, body: SiteHeadersRequest, identity: CurrentIdentity, session: WriteSession
) -> SiteHeadersAnswer | None:
    """Replace the headers that scans of a site send to one origin, robots.txt included.

    Everyone with the scope `read` sees what they open; everyone with `scan` can have them sent.
    """
    async with session.begin():
        found = await lock_domain(session, domain, partial(require_owner, identity))
        given = OriginHeaders(body.origin, body.headers)
        headers = await set_site_headers(session, found, given, identity.user_id)
    log.info("site_headers_set", domain=found.domain)
    return _shown_headers(headers)


def _shown_headers(headers: OriginHeaders | None) -> SiteHeadersAnswer | None:
    return None if headers is None else SiteHeadersAnswer(headers.origin, headers.names)


@router.post(
    "/{domain}/release",
    dependencies=[SCAN],
    summary="Release held removals",
    status_code=status.HTTP_202_ACCEPTED,
    responses=problems(404, 409),
)
async def release_held_removals(
    domain: DomainName,
    context: Context,
    identity: CurrentIdentity,
    limits: CurrentLimits,
    session: WriteSession,
) -> ReleaseAnswer:
    """Queue a scan that removes all missing URLs of a site without further proof."""
    async with limits.queue_room.turn(identity) as turn, session.begin():
        await turn.reserve(session)
        found, job = await release_removals(
            session,
            parse_site(domain).domain,
            created_by=identity.user_id,
            max_attempts=context.settings.max_attempts,
            check_owner=partial(require_owner, identity),
        )
        answer = ReleaseAnswer(
            domain=found.domain,
            missing_count=found.missing_count,
            job_id=job.job_id,
            status_url=STATUS_PATH.format(job_id=job.job_id),
            deduplicated=job.deduplicated,
        )
    context.wake_consumer()
    log.info("removals_released", domain=answer.domain)
    return answer


@router.delete(
    "/{domain}",
    dependencies=[SCAN],
    summary="Remove a site",
    status_code=status.HTTP_204_NO_CONTENT,
    responses=problems(404, 409),
)
async def remove_domain(domain: DomainName, identity: CurrentIdentity) -> None:
    """Remove a site before the response, and everything stored about it later, in small batches.

    If the site is added again, it is a new site without history. The records of its jobs are kept
    as long as those of other jobs. A site that holds scans of other users is removed only with the
    scope `admin`.
    """
    name = parse_site(domain).domain
    await _remove_domain_with_retries(name, identity)
    log.info("domain_deleted", domain=name)


@retry_when_busy
async def _remove_domain_with_retries(name: str, identity: Identity) -> None:
    async with get_session() as session, session.begin():
        await remove_domain_and_jobs(session, name, identity.limited_to_user)


domain_imports_router = APIRouter(tags=["domains"], route_class=ParsedBodyRoute)


@domain_imports_router.post(
    f"{PREFIX}/import",
    dependencies=[SCAN],
    summary="Watch many sites",
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
        shown = self._texts[position][:300]
        self.found.append(
            ImportFault(position=position, domain=shown, error_code=error.code, error=error.message)
        )
