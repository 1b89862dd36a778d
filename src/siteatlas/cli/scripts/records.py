"""What the programs in `scripts/` read and change in the database, one session per step."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from siteatlas.cli.terminal.database import opened
from siteatlas.errors import JobNotFound, JobStateConflict
from siteatlas.insights.domains import DomainView, find_domain_view
from siteatlas.insights.jobs import JobView, find_job, list_jobs
from siteatlas.insights.pages import MAX_LIMIT
from siteatlas.insights.sitemaps import SitemapView, find_sitemap, list_sitemaps
from siteatlas.net.address import parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.processor.own_session import process_domain_with_own_session
from siteatlas.queue.job_service import job_service
from siteatlas.queue.new_job import SubmittedJob
from siteatlas.queue.operator_actions import cancel
from siteatlas.queue.statuses import ACTIVE_STATUSES, STATUS_ALIASES, parse_status_or_type
from siteatlas.queue.submission import submit_site
from siteatlas.scheduler.sitemap_scheduler import TickReport, process_pending_sitemaps
from siteatlas.settings import Settings
from siteatlas.storage.models import LOCAL_USER_ID, JobStatus, SitemapStatus
from siteatlas.storage.session import get_session
from siteatlas.storage.statements.sitemaps import update_sitemaps

OTHER_WORKER_SECONDS = 0.5


async def queue_site(settings: Settings, domain: str, *, reset: bool) -> SubmittedJob:
    """Queue a scan; `reset` cancels a job of the site that still waits."""
    address = parse_site(domain)
    EgressPolicy.from_text(settings.egress_allow).check(address)
    async with opened(settings), get_session() as session, session.begin():
        if reset:
            waiting = await list_jobs(session, status=JobStatus.PENDING, domain=domain, limit=1)
            for job in waiting.items:
                await cancel(session, job.id)
        return await submit_site(
            session,
            address,
            created_by=LOCAL_USER_ID,
            interval_hours=settings.scan_interval_hours,
            max_attempts=settings.max_attempts,
        )


async def site_with_newest_job(
    settings: Settings, domain: str
) -> tuple[DomainView, list[SitemapView], JobView | None]:
    """A site, its documents, and its newest job if it ever had one."""
    async with opened(settings):
        async with get_session() as session, session.begin():
            page = await list_jobs(session, domain=domain, limit=1)
        return *await _site_with_sitemaps(domain), page.items[0] if page.items else None


async def site_with_sitemaps(
    settings: Settings, domain: str
) -> tuple[DomainView, list[SitemapView]]:
    """A site and its documents, all of them."""
    async with opened(settings):
        return await _site_with_sitemaps(domain)


async def _site_with_sitemaps(domain: str) -> tuple[DomainView, list[SitemapView]]:
    """Read a stored site and all its sitemaps for a program in `scripts/`."""
    async with get_session() as session, session.begin():
        site = await find_domain_view(session, domain)
        sitemaps: list[SitemapView] = []
        cursor = None
        while True:
            page = await list_sitemaps(session, site.id, limit=MAX_LIMIT, cursor=cursor)
            sitemaps.extend(page.items)
            cursor = page.next_cursor
            if cursor is None:
                return site, sitemaps


async def run_scheduler(settings: Settings) -> tuple[TickReport, list[JobView]]:
    """One run of the scheduler, and the jobs that it ran as they are now."""
    policy = EgressPolicy.from_text(settings.egress_allow)
    async with opened(settings):
        report = await process_pending_sitemaps(
            settings.scheduler_batch_size, settings=settings, policy=policy
        )
        async with get_session() as session, session.begin():
            return report, [await find_job(session, job_id) for job_id in report.outcomes]


async def process_document(settings: Settings, sitemap_id: UUID) -> JobView:
    """Scan exactly one stored document, here or by the worker that was quicker."""
    async with opened(settings):
        async with get_session() as session, session.begin():
            sitemap = await find_sitemap(session, sitemap_id)
            site = await find_domain_view(session, sitemap.domain)
            job = await submit_site(
                session,
                parse_site(site.base_url),
                created_by=LOCAL_USER_ID,
                document=sitemap.url,
                max_attempts=settings.max_attempts,
            )
        if job.deduplicated:
            raise JobStateConflict(f"Job {job.id} of this site is not finished. Try again later.")
        await process_domain_with_own_session(job.id)
        return await _wait_for_processed_document(job.id)


async def _wait_for_processed_document(job_id: int) -> JobView:
    """Wait for the end of the job that the program `process_sitemap` in `scripts/` queued."""
    while True:
        async with get_session() as session, session.begin():
            job = await find_job(session, str(job_id))
        if job.status not in ACTIVE_STATUSES:
            return job
        await asyncio.sleep(OTHER_WORKER_SECONDS)


async def reset_job(settings: Settings, domain: str, status: str) -> JobView:
    """Set the status of the newest job of a site."""
    async with opened(settings), get_session() as session, session.begin():
        page = await list_jobs(session, domain=domain, limit=1)
        if not page.items:
            raise JobNotFound("This site has no job.")
        await job_service.update_status(session, page.items[0].id, status)
        return await find_job(session, str(page.items[0].id))


async def reset_document(settings: Settings, sitemap_id: UUID, status: str) -> SitemapView:
    """Set the status of a document; one that is pending again is read again in full."""
    word = parse_status_or_type(status, SitemapStatus, "status", STATUS_ALIASES)
    async with opened(settings), get_session() as session, session.begin():
        sitemap = await find_sitemap(session, sitemap_id)
        running = await list_jobs(
            session, status=JobStatus.PROCESSING, domain=sitemap.domain, limit=1
        )
        if running.items:
            raise JobStateConflict("A worker is scanning this site. Cancel its job first.")
        values: dict[str, Any] = {"id": sitemap_id, "status": word}
        if word is SitemapStatus.PENDING:
            values |= {"etag": None, "last_modified": None, "content_hash": None}
        await update_sitemaps(session, [values])
        return await find_sitemap(session, sitemap_id)
