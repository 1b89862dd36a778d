"""Ending a hold by hand: the next scan of the site removes all URLs that are missing."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from sqlalchemy import func, literal, select, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import DomainNotFound, NothingHeld
from siteatlas.queue.fence import IS_CLAIM_HOLDER, Claim
from siteatlas.queue.new_job import NewJob, SubmittedJob
from siteatlas.queue.submission import create
from siteatlas.settings import DEFAULT_MAX_ATTEMPTS
from siteatlas.storage.models import Domain, Job
from siteatlas.storage.statements.domains import find_domain
from siteatlas.storage.tables import JOBS

RELEASE = "release_removals"
IS_RELEASE_REQUESTED = select(
    func.coalesce(JOBS.c.job_metadata[RELEASE].as_boolean(), False)
).where(IS_CLAIM_HOLDER)


async def release_removals(
    session: AsyncSession,
    name: str,
    *,
    created_by: UUID,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    check_owner: Callable[[UUID], None] | None = None,
) -> tuple[Domain, SubmittedJob]:
    """Queue a scan of a site that ends its hold, or let the active one do so.

    `check_owner` raises if the site may not be changed. NothingHeld if there is no hold.
    """
    domain = await find_domain(session, name, lock=True)
    if domain is None:
        raise DomainNotFound
    if check_owner is not None:
        check_owner(domain.created_by)
    if domain.removals_held_since is None:
        raise NothingHeld
    new = NewJob(
        domain=domain.domain,
        base_url=domain.base_url,
        created_by=created_by,
        domain_id=domain.id,
        max_pages=domain.max_pages,
        max_attempts=max_attempts,
    )
    job = await create(session, new)
    await _request_release(session, job.id)
    return domain, job


async def _request_release(session: AsyncSession, job_id: int) -> None:
    """Note on a job that its scan ends the hold; it looks there before it decides."""
    noted = func.jsonb_build_object(literal(RELEASE), literal(True), type_=JSONB())
    metadata = func.coalesce(Job.job_metadata, func.jsonb_build_object(), type_=JSONB())
    await session.execute(
        update(Job)
        .where(Job.id == job_id)
        .values(job_metadata=metadata.op("||")(noted))
        .execution_options(synchronize_session=False)
    )


async def is_release_requested(session: AsyncSession, claim: Claim) -> bool:
    """Whether a user wants the scan of this job to end the hold of its site."""
    return bool(await session.scalar(IS_RELEASE_REQUESTED, claim.fenced))
