"""The functions behind the programs in `scripts/`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import typer

from siteatlas.catalog.domains import DomainView, find_domain_view
from siteatlas.catalog.paging import MAX_LIMIT
from siteatlas.catalog.sitemaps import SitemapView, find_sitemap, list_sitemaps, update_sitemaps
from siteatlas.cli.commands.scheduler import scheduler_state, write_state
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import exit_with, run
from siteatlas.cli.terminal.output import write_line
from siteatlas.errors import InputError, JobNotFound, JobStateConflict
from siteatlas.net.address import parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.processor.processing import process_domain_with_own_session
from siteatlas.queue.fence import (
    ACTIVE_STATUSES,
    STATUS_ALIASES,
    SubmittedJob,
    parse_status_or_type,
)
from siteatlas.queue.job_service import job_service
from siteatlas.queue.operator_actions import cancel
from siteatlas.queue.submission import submit_site
from siteatlas.queue.views import JobView, find_job, list_jobs
from siteatlas.scheduler.sitemap_scheduler import TickReport, process_pending_sitemaps
from siteatlas.settings import Settings
from siteatlas.storage.models import LOCAL_USER_ID, JobStatus, SitemapStatus
from siteatlas.storage.session import get_session

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


MAX_PENDING_SHOWN = 100

DomainOption = Annotated[str, typer.Option(help="The site, such as example.com.")]
OptionalDomain = Annotated[str | None, typer.Option("--domain", help="The site.")]
OptionalSitemap = Annotated[UUID | None, typer.Option("--sitemap-id", help="The id of a sitemap.")]


def run_script(program: Callable[..., None]) -> None:
    """Run one of the programs below with the arguments of this process."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    app.command()(program)
    try:
        app()
    except Exception as error:  # noqa: BLE001 the error boundary of one command
        exit_with(error)


def add_test_sitemap(
    domain: DomainOption,
    reset: Annotated[
        bool, typer.Option("--reset", help="Cancel a pending job of the site first.")
    ] = False,
) -> None:
    """Queue a scan of a site."""
    job = run(queue_site(prepare(), domain, reset=reset))
    write_line(f"{'Found' if job.deduplicated else 'Added'} job for domain {job.domain}")
    write_line(f"Job ID: {job.id}")
    write_line(f"Job UUID: {job.job_id}")
    write_line(f"Status: {job.status}")


def check_sitemap(
    domain: DomainOption,
    detailed: Annotated[bool, typer.Option("--detailed", help="Show every sitemap.")] = False,
) -> None:
    """Show how far the scan of a site is."""
    settings = prepare()
    site, sitemaps, job = run(site_with_newest_job(settings, domain))
    write_line(f"Domain: {site.domain}")
    write_line(f"Status: {job.status if job else 'never scanned'}")
    write_line(f"Sitemaps: {site.sitemap_count}")
    write_line(f"URLs: {site.url_count}")
    if job:
        _write_error_line(job)
    if detailed:
        _write_sitemaps(site.domain, sitemaps)


def process_sitemap(
    sitemap_id: OptionalSitemap = None,
    trigger_scheduler: Annotated[
        bool, typer.Option("--trigger-scheduler", help="Run the scheduler once instead.")
    ] = False,
) -> None:
    """Scan exactly one sitemap, or run the scheduler once."""
    if trigger_scheduler == (sitemap_id is not None):
        raise InputError("Use either --sitemap-id or --trigger-scheduler.")
    settings = prepare()
    if sitemap_id is None:
        _trigger(settings)
        return
    job = run(process_document(settings, sitemap_id))
    _write_job_fields(job)
    raise typer.Exit(0 if job.status == "completed" else 1)


def reset_sitemap_status(
    status: Annotated[str, typer.Option(help="The status to set.")],
    domain: OptionalDomain = None,
    sitemap_id: OptionalSitemap = None,
) -> None:
    """Set the newest job of a site, or one sitemap, back; never while a worker holds it."""
    settings = prepare()
    if domain is not None and sitemap_id is None:
        job = run(reset_job(settings, domain, status))
        write_line(f"Job ID: {job.id}")
        write_line(f"Status: {job.status}")
    elif sitemap_id is not None and domain is None:
        sitemap = run(reset_document(settings, sitemap_id, status))
        write_line(f"Sitemap ID: {sitemap.id}")
        write_line(f"Status: {sitemap.status}")
    else:
        raise InputError("Use either --domain or --sitemap-id.")


def monitor_scheduler(
    once: Annotated[bool, typer.Option("--once", help="Print the state once and exit.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between updates.")] = 30,
) -> None:
    """Show how the scheduler is doing, again and again."""
    run(_monitor(prepare(), None if once else interval))


def debug_pending_jobs() -> None:
    """Show the jobs that wait."""
    jobs = run(_pending(prepare()))
    write_line(f"Found {len(jobs)} pending sitemap jobs")
    for job in jobs:
        write_line(f"ID: {job.id}")
        write_line(f"UUID: {job.job_id}")
        write_line(f"Status: {job.status}")
        write_line(f"Result Data: {job.result_data}")
        write_line(f"Domain found: {job.domain}")


def trigger_scheduler() -> None:
    """Run the scheduler once and wait for the jobs it took."""
    _trigger(prepare())


def check_job(
    id: Annotated[str | None, typer.Option(help="Number or UUID of the job.")] = None,
    latest: Annotated[bool, typer.Option("--latest", help="The newest job.")] = False,
) -> None:
    """Show one job."""
    if latest == (id is not None):
        raise InputError("Use either --id or --latest.")
    _write_job_fields(run(_named_or_newest_job(prepare(), id)))


def check_domain_sitemaps(
    domain: Annotated[str, typer.Argument(help="The site, such as example.com.")],
) -> None:
    """Show the sitemaps of a site."""
    site, sitemaps = run(site_with_sitemaps(prepare(), domain))
    _write_sitemaps(site.domain, sitemaps)


def _trigger(settings: Settings) -> None:
    """For the scripts that trigger the scheduler: run it once; exit code 1 if a job failed."""
    report, jobs = run(run_scheduler(settings))
    write_line(f"Found {report.found} pending sitemap jobs")
    write_line(f"Queued {report.due_enqueued} due domains")
    for job in jobs:
        write_line(f"Job {job.job_id}: {report.outcomes[str(job.job_id)]}")
        _write_error_line(job)
    if JobStatus.FAILED in {job.status for job in jobs}:
        raise typer.Exit(1)


def _write_job_fields(job: JobView) -> None:
    write_line(f"Job ID: {job.id}")
    write_line(f"Job UUID: {job.job_id}")
    write_line(f"Job Type: {job.job_type}")
    write_line(f"Status: {job.status}")
    write_line(f"Result Data: {job.result_data}")
    _write_error_line(job)


def _write_error_line(job: JobView) -> None:
    if job.error_code or job.error:
        write_line(": ".join(part for part in ("Error", job.error_code, job.error) if part))


def _write_sitemaps(domain: str, sitemaps: list[SitemapView]) -> None:
    write_line(f"Found {len(sitemaps)} sitemaps for domain {domain}:")
    for sitemap in sitemaps:
        write_line(f"- ID: {sitemap.id}")
        write_line(f"  URL: {sitemap.url}")
        write_line(f"  Type: {sitemap.type}")
        write_line(f"  Discovery: {sitemap.discovery_method}")
        write_line(f"  Status: {sitemap.status}")
        write_line(f"  Job ID: {sitemap.job_id}")
        write_line(f"  Created by: {sitemap.created_by}")
        write_line(f"  Created at: {sitemap.created_at}")
        if sitemap.error_code:
            label = "Limited" if sitemap.limited else "Error"
            write_line(f"  {label}: {sitemap.error_code}: {sitemap.error or ''}".rstrip(": "))


async def _pending(settings: Settings) -> list[JobView]:
    async with opened(settings), get_session() as session, session.begin():
        jobs = await job_service.get_pending_jobs(session, limit=MAX_PENDING_SHOWN)
        return [await find_job(session, str(job.id)) for job in jobs]


async def _named_or_newest_job(settings: Settings, ident: str | None) -> JobView:
    async with opened(settings), get_session() as session, session.begin():
        if ident is not None:
            return await find_job(session, ident)
        newest = await list_jobs(session, limit=1)
        if not newest.items:
            raise JobNotFound("There are no jobs yet.")
        return newest.items[0]


async def _monitor(settings: Settings, interval: float | None) -> None:
    """Print updates of the program `monitor_scheduler` in `scripts/`; one if no interval is set."""
    async with opened(settings):
        await _write_monitor_update()
        while interval is not None:
            await asyncio.sleep(interval)
            write_line("")
            await _write_monitor_update()


async def _write_monitor_update() -> None:
    write_line(f"--- {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC ---")
    write_state(await scheduler_state())
