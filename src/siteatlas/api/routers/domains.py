"""Sites: list, watch, change, remove; release their held removals."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response, status

from siteatlas.access.identity import CurrentIdentity, Identity
from siteatlas.access.limits import CurrentLimits
from siteatlas.access.marks import READ, SCAN
from siteatlas.access.ownership import owner_check, require_owner, require_right_to_watch
from siteatlas.api.addresses import parse_site_field
from siteatlas.api.body_limits import ParsedBodyRoute
from siteatlas.api.context import NO_WORKER, STATUS_PATH, Context
from siteatlas.api.openapi import LOCATION, problems
from siteatlas.api.schemas.base import MAX_ADDRESS_CHARS, PageAnswer
from siteatlas.api.schemas.domains import (
    DomainAdded,
    DomainAnswer,
    DomainChange,
    DomainRequest,
    DomainsQuery,
    ReleaseAnswer,
)
from siteatlas.api.sessions import ReadSession, WriteSession
from siteatlas.errors import DomainNotFound
from siteatlas.insights.domains import DomainView, domain_view, find_domain_view, list_domains
from siteatlas.insights.pages import Page
from siteatlas.logs import get_logger
from siteatlas.net.address import WebAddress, parse_site
from siteatlas.queue.held_removals import release_removals
from siteatlas.queue.new_job import SubmittedJob
from siteatlas.queue.operator_actions import remove_domain_and_jobs
from siteatlas.queue.submission import watch_site
from siteatlas.storage.models import Domain
from siteatlas.storage.retry import retry_when_busy
from siteatlas.storage.session import AsyncSession, get_session
from siteatlas.storage.statements.domains import change_domain, find_domain, register_domain
from siteatlas.tags import parse_tags

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
    response_model=PageAnswer[DomainAnswer],
    responses=problems(),
)
async def get_domains(
    query: Annotated[DomainsQuery, Query()], session: ReadSession
) -> Page[DomainView]:
    """All sites, ordered by name."""
    return await list_domains(
        session,
        watched=query.watched,
        tag=query.wanted_tag,
        limit=query.limit,
        cursor=query.cursor,
    )


@router.post(
    "",
    dependencies=[SCAN],
    summary="Watch a site",
    status_code=status.HTTP_201_CREATED,
    response_model=DomainAdded,
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

    How a site is watched by another user is changed only with the scope `admin`.
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
            max_pages=body.max_pages,
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
    return DomainAdded(
        **dict(DomainAnswer.model_validate(view)),
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
    """The site, and the job of its scan if it is watched."""
    if not body.watch:
        domain = await register_domain(
            session,
            address,
            created_by=identity.user_id,
            max_pages=body.max_pages,
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
        max_pages=body.max_pages,
        max_attempts=context.settings.max_attempts,
        tags=tags,
    )


@router.get(
    "/{domain}",
    dependencies=[READ],
    summary="Show a site",
    response_model=DomainAnswer,
    responses=problems(404),
)
async def get_domain(domain: DomainName, session: ReadSession) -> DomainView:
    """What is stored about one site: its settings, counters and last scan."""
    return await find_domain_view(session, domain)


@router.patch(
    "/{domain}",
    dependencies=[SCAN],
    summary="Change a site",
    response_model=DomainAnswer,
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
        found = await find_domain(session, parse_site(domain).domain, lock=True)
        if found is None:
            raise DomainNotFound
        require_owner(identity, found.created_by)
        await change_domain(session, found, **body.changes())
        view = domain_view(found)
    context.notify_scheduler()
    log.info("domain_changed", domain=view.domain)
    return view


@router.post(
    "/{domain}/release",
    dependencies=[SCAN],
    summary="Release held removals",
    status_code=status.HTTP_202_ACCEPTED,
    response_model=ReleaseAnswer,
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
    as long as those of other jobs.
    """
    name = parse_site(domain).domain
    await _remove_domain_with_retries(name, identity)
    log.info("domain_deleted", domain=name)


@retry_when_busy
async def _remove_domain_with_retries(name: str, identity: Identity) -> None:
    """Remove the site of a DELETE request; retry while the database is busy."""
    async with get_session() as session, session.begin():
        await remove_domain_and_jobs(session, name, owner_check(identity))
