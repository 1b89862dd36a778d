"""Queues the watched sites that are due. `sitemap_scheduler` decides when to look for them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from siteatlas.errors import DatabaseBusy, DatabaseError, JobActive, SiteatlasError
from siteatlas.logs import get_logger
from siteatlas.net.address import parse_site
from siteatlas.queue.follow_ups import request_follow_ups
from siteatlas.queue.new_job import Priority, SubmittedJob
from siteatlas.queue.submission import submit_site
from siteatlas.settings import Settings
from siteatlas.storage.faults import translated_faults
from siteatlas.storage.models import SYSTEM_USER_ID
from siteatlas.storage.session import AsyncSession, get_background_session
from siteatlas.storage.statements.domain_results import record_domain_failure
from siteatlas.storage.statements.domains import postpone_scan, take_due_domains

log = get_logger("scheduler")

RETRY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _DueSite:
    """A watched site that is due, copied from its row because that expires with a savepoint."""

    id: UUID
    domain: str
    base_url: str
    max_pages: int | None


async def enqueue_due_domains(settings: Settings) -> int:
    """Queue a scan of each watched site that is due, a batch at a time until none is left.

    A site that cannot be queued is recorded as failed until its next scan. One whose rows are
    locked is due again in a minute. One that has a job of a user is queued when that job ends,
    unless the job counts as the scheduled scan.
    """
    total = 0
    while results := await _enqueue_batch(settings):
        total += sum(results)
    return total


async def _enqueue_batch(settings: Settings) -> list[bool]:
    """Queue a batch of due sites in one transaction. Return for each whether it was queued."""
    async with get_background_session() as session, session.begin():
        domains = await take_due_domains(
            session, settings.scheduler_batch_size, settings.scan_interval_hours
        )
        due = [_DueSite(d.id, d.domain, d.base_url, d.max_pages) for d in domains]
        active: dict[int, _DueSite] = {}
        queued = [await _enqueue_due_site(session, site, settings, active) for site in due]
        await _follow_active_jobs(session, active)
        return queued


async def _follow_active_jobs(session: AsyncSession, active: Mapping[int, _DueSite]) -> None:
    """Have due sites queued when their active jobs end; those that just did are due in a minute."""
    followed: set[int] = set()
    with suppress(DatabaseBusy), translated_faults():
        async with session.begin_nested():
            followed = await request_follow_ups(session, active)
    for job_id in active.keys() - followed:
        await postpone_scan(session, active[job_id].id, RETRY_SECONDS)


async def _enqueue_due_site(
    session: AsyncSession, site: _DueSite, settings: Settings, active: dict[int, _DueSite]
) -> bool:
    """Queue a due site; if that fails, log it and go on with the others. True if queued.

    A site that has a job of a user is added to `active`.
    """
    try:
        with translated_faults():
            async with session.begin_nested():
                submitted = await _submit_due_site(session, site, settings)
    except DatabaseBusy as error:
        log.warning("due_domain_postponed", domain=site.domain, reason=error.code)
        await postpone_scan(session, site.id, RETRY_SECONDS)
        return False
    except DatabaseError:
        raise
    except Exception as error:
        own = error if isinstance(error, SiteatlasError) else SiteatlasError()
        log.warning(
            "due_domain_failed",
            domain=site.domain,
            base_url=site.base_url,
            error_code=own.code,
            error=own.message,
            exc_info=None if error is own else error,
        )
        await record_domain_failure(session, site.id, own.code)
        return False
    if submitted.deduplicated and not submitted.is_scheduled:
        log.info("due_domain_postponed", domain=site.domain, reason=JobActive.code)
        active[submitted.id] = site
        return False
    log.info("domain_due", domain=site.domain)
    return True


async def _submit_due_site(
    session: AsyncSession, site: _DueSite, settings: Settings
) -> SubmittedJob:
    """Submit a due site on behalf of the system user, with the priority of scheduled scans."""
    return await submit_site(
        session,
        parse_site(site.base_url),
        created_by=SYSTEM_USER_ID,
        max_pages=site.max_pages,
        interval_hours=settings.scan_interval_hours,
        priority=Priority.SCHEDULED,
        max_attempts=settings.max_attempts,
    )
