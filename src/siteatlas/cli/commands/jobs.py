"""`siteatlas jobs`: list, show, watch, retry and cancel jobs."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from siteatlas.cli.commands.job_summary import (
    is_partial,
    result_of,
    shown_status,
    write_summary,
)
from siteatlas.cli.terminal.choices import alternatives, complete_choice
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.options import (
    AllOption,
    CursorOption,
    FailOn,
    FailOnOption,
    FormatOption,
    JobArgument,
    JsonOption,
    LimitOption,
    ListJsonOption,
)
from siteatlas.cli.terminal.output import (
    WIDE,
    Column,
    ColumnKind,
    ListFormat,
    percent,
    print_message,
    print_warning,
    write_json,
)
from siteatlas.cli.terminal.paged_list import ListRequest, TableLayout, write_list
from siteatlas.cli.terminal.progress import ProgressLine
from siteatlas.cli.terminal.tag_options import TagFilterOption
from siteatlas.errors import JobNotFound
from siteatlas.insights.domains import find_domain_view
from siteatlas.insights.jobs import (
    AttemptView,
    JobView,
    find_job,
    list_attempts,
    list_jobs,
)
from siteatlas.insights.pages import DEFAULT_LIMIT, Page
from siteatlas.insights.problems import list_problems
from siteatlas.insights.scan_documents import ScanDocumentView, list_unread_documents
from siteatlas.insights.workers import any_worker_alive
from siteatlas.processor.recount import recount_site
from siteatlas.queue.operator_actions import cancel as cancel_job
from siteatlas.queue.operator_actions import retry as retry_job
from siteatlas.queue.statuses import ACTIVE_STATUSES
from siteatlas.settings import Settings
from siteatlas.storage.models import JobStatus
from siteatlas.storage.session import get_session

WATCH_SECONDS = 0.5


SHAPE: TableLayout[JobView] = TableLayout(
    columns=[
        Column("ID", right=True),
        Column("SCAN", right=True),
        Column("DOMAIN"),
        Column("STATUS", kind=ColumnKind.STATUS),
        Column("PROGRESS", right=True),
        Column("ATTEMPT", right=True, from_width=WIDE),
        Column("CREATED", kind=ColumnKind.AGE),
        Column("FINISHED", kind=ColumnKind.AGE, from_width=WIDE),
        Column("ERROR"),
    ],
    row=lambda j: (
        j.id,
        result_of(j).get("scan_id"),
        j.domain,
        shown_status(j),
        percent(j.progress),
        f"{j.attempt}/{j.max_attempts}",
        j.created_at,
        j.finished_at,
        j.error_code or ", ".join(result_of(j).get("reasons") or []),
    ),
    none="There are no jobs yet.",
    none_matches="No job matches.",
    record=JobView,
)
app = typer.Typer(help="Manage jobs.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_(
    *,
    status: Annotated[
        str | None,
        typer.Option(
            metavar=alternatives(JobStatus),
            autocompletion=complete_choice(JobStatus),
            help="Only jobs with this status.",
        ),
    ] = None,
    domain: Annotated[str | None, typer.Option(help="Only jobs for this site.")] = None,
    tag: TagFilterOption = None,
    limit: LimitOption = DEFAULT_LIMIT,
    cursor: CursorOption = None,
    everything: AllOption = False,
    format: FormatOption = ListFormat.TABLE,
    as_json: ListJsonOption = False,
) -> None:
    """List jobs, newest first."""
    settings = prepare()
    request = ListRequest.of(
        format, as_json=as_json, limit=limit, cursor=cursor, everything=everything
    )
    run(_list(settings, request, status, domain, tag))


@app.command()
def show(job: JobArgument, as_json: JsonOption = False) -> None:
    """Show a job: its status, what it found, and its attempts."""
    found, attempts, documents = run(_find(prepare(), job))
    if as_json:
        write_json({**asdict(found), "attempts": attempts})
    else:
        write_summary(found, attempts, documents)


@app.command()
def watch(
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help="Number or UUID of the job. Default: the newest job."),
    ] = None,
    fail_on: FailOnOption = FailOn.FAILED,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="Stop following the job after this time and exit with 1."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Follow a job until it ends; exit with 0 if it completed, 1 if not."""
    seen, documents, problems = run(_watch(prepare(), job, timeout, fail_on))
    if as_json:
        write_json(seen)
    else:
        write_summary(seen, documents=documents)
    if seen.status in ACTIVE_STATUSES:
        print_warning(
            f"Job {seen.id} is still running. Watch it again: siteatlas jobs watch {seen.id}"
        )
    raise typer.Exit(watch_exit_code(seen, fail_on, problems=problems))


def watch_exit_code(job: JobView, fail_on: FailOn, *, problems: bool = False) -> int:
    """0 for a job that completed, unless `fail_on` counts its partial result or problems."""
    if job.status != JobStatus.COMPLETED:
        return 1
    return int(fail_on.counts_as_failure(partial=is_partial(job), problems=problems))


@app.command()
def retry(job: JobArgument, as_json: JsonOption = False) -> None:
    """Queue a failed or cancelled job again."""
    changed = run(_retry(prepare(), job))
    _write_changed(changed, as_json=as_json)


@app.command()
def cancel(job: JobArgument, as_json: JsonOption = False) -> None:
    """Cancel a job; a running job stops within seconds."""
    changed = run(_cancel(prepare(), job))
    _write_changed(changed, as_json=as_json)


def _write_changed(job: JobView, *, as_json: bool) -> None:
    """Report a job that `siteatlas jobs` retried or cancelled: a line, or the job as JSON."""
    if as_json:
        write_json(job)
        return
    asked = job.status == JobStatus.PROCESSING and job.cancel_requested_at is not None
    print_message(f"Job {job.id} ({job.domain}) is {'asked to stop' if asked else job.status}.")


async def _list(
    settings: Settings,
    request: ListRequest,
    status: str | None,
    domain: str | None,
    tag: str | None,
) -> None:
    """Print the jobs for `siteatlas jobs list`."""

    async def fetch(limit: int, cursor: str | None) -> Page[JobView]:
        """Read one page of jobs for `siteatlas jobs list`."""
        async with get_session() as session, session.begin():
            return await list_jobs(
                session, status=status, domain=domain, tag=tag, limit=limit, cursor=cursor
            )

    async with opened(settings):
        if domain is not None:
            await _require_known(domain)
        await write_list(request, fetch, SHAPE.filtered_by(status, domain, tag))


async def _require_known(domain: str) -> None:
    """Raise DomainNotFound if a site is not stored and has no jobs left."""
    async with get_session() as session, session.begin():
        if not (await list_jobs(session, domain=domain, limit=1)).items:
            await find_domain_view(session, domain)


async def _find(
    settings: Settings, ident: str
) -> tuple[JobView, list[AttemptView], list[ScanDocumentView]]:
    """Read a job, its attempts and what it could not read, for `siteatlas jobs show`."""
    async with opened(settings), get_session() as session, session.begin():
        job = await find_job(session, ident)
        unread = await list_unread_documents(session, job.id)
        return job, await list_attempts(session, job.id), unread


async def _watch(
    settings: Settings, ident: str | None, max_seconds: float | None, fail_on: FailOn
) -> tuple[JobView, list[ScanDocumentView], bool]:
    """The job once it has ended, or as it is when the time is up, and what it could not read.

    Also whether its site has problems, which are looked for only if they matter.
    """
    async with opened(settings):
        job = await _until_ended(ident or await _newest_job_id(), max_seconds)
        async with get_session() as session, session.begin():
            unread = await list_unread_documents(session, job.id)
        return job, unread, fail_on is FailOn.PROBLEMS and await _has_problems(job)


async def _until_ended(ident: str, max_seconds: float | None) -> JobView:
    """Show the progress of a job for `siteatlas jobs watch` until it ends or the time is up."""
    idle = IdleNotice()
    with ProgressLine() as progress:
        while True:
            async with get_session() as session, session.begin():
                job = await find_job(session, ident)
                served = await any_worker_alive(session)
            if job.status not in ACTIVE_STATUSES:
                return job
            if max_seconds is not None and progress.seconds >= max_seconds:
                return job
            idle.notice(job, served=served)
            progress.show(partial(_progress_text, job, served=served))
            await asyncio.sleep(WATCH_SECONDS)


async def _has_problems(job: JobView) -> bool:
    """Whether the sitemaps of the site have problems as of their last read."""
    if job.domain_id is None:
        return False
    async with get_session() as session, session.begin():
        return bool((await list_problems(session, job.domain_id, limit=1)).items)


class IdleNotice:
    """Prints once, until that changes, that no worker is running."""

    def __init__(self) -> None:
        self._said = False

    def notice(self, job: JobView, *, served: bool) -> None:
        """Print that the job waits for a worker, unless that was printed before."""
        if not served and not self._said:
            print_message(
                f"No worker is running, so job {job.id} is waiting. Start one: siteatlas serve"
            )
        self._said = not served


def _progress_text(job: JobView, *, served: bool) -> str:
    """The progress line of `siteatlas jobs watch`."""
    waits = "" if served else ", no worker is running"
    return f"Job {job.id} ({job.domain}): {shown_status(job)}, {percent(job.progress)}{waits}"


async def _newest_job_id() -> str:
    """The job that `siteatlas jobs watch` follows if no job is given."""
    async with get_session() as session, session.begin():
        page = await list_jobs(session, limit=1)
    if not page.items:
        raise JobNotFound("There are no jobs yet.")
    return str(page.items[0].id)


async def _retry(settings: Settings, ident: str) -> JobView:
    """Queue a job again for `siteatlas jobs retry`; returns the job as it is then."""
    async with opened(settings), get_session() as session, session.begin():
        job = await find_job(session, ident)
        await retry_job(session, job.id)
        return await find_job(session, ident)


async def _cancel(settings: Settings, ident: str) -> JobView:
    """Cancel a job for `siteatlas jobs cancel`; returns the job as it is then."""
    async with opened(settings):
        async with get_session() as session, session.begin():
            job = await find_job(session, ident)
            await cancel_job(session, job.id)
            job = await find_job(session, ident)
        if job.status == JobStatus.CANCELLED:
            await recount_site(job.id)
        return job
