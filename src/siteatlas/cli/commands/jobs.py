"""`siteatlas jobs`: list, show, watch, retry and cancel jobs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Annotated, Any

import typer
from rich.text import Text

from siteatlas.catalog.domains import find_domain_view
from siteatlas.catalog.paging import Page
from siteatlas.catalog.problems import list_problems
from siteatlas.catalog.scans import find_scan_of_job, list_unread_documents
from siteatlas.catalog.sitemaps import DocumentRead
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import advice_for, run
from siteatlas.cli.terminal.options import (
    FailOn,
    FailOnOption,
    JsonOption,
    TagFilterOption,
    alternatives,
    complete_choice,
)
from siteatlas.cli.terminal.output import (
    WIDE,
    Column,
    ColumnKind,
    cell_text,
    console_for,
    counted,
    is_terminal,
    percent,
    print_message,
    print_warning,
    write_json,
    write_table,
)
from siteatlas.cli.terminal.paged_list import (
    ListRequest,
    TableLayout,
    print_list,
    with_list_options,
)
from siteatlas.cli.terminal.tables import ProgressLine, relative_time, shorten_middle, status_text
from siteatlas.errors import JobNotFound, error_classes
from siteatlas.processor.processing import recount_site
from siteatlas.queue.fence import ACTIVE_STATUSES
from siteatlas.queue.operator_actions import cancel as cancel_job
from siteatlas.queue.operator_actions import retry as retry_job
from siteatlas.queue.views import (
    AttemptView,
    JobView,
    any_worker_alive,
    find_job,
    list_attempts,
    list_jobs,
)
from siteatlas.settings import Settings
from siteatlas.storage.models import JobStatus, SitemapScanState
from siteatlas.storage.session import AsyncSession, get_session
from siteatlas.text import printable

MAX_SITEMAPS_SHOWN = 5
LABEL_WIDTH = 10
DOCUMENT_LABELS = {SitemapScanState.UNREAD: "not read", SitemapScanState.CUT: "truncated"}
ATTEMPT_COLUMNS = [
    Column("ATTEMPT", right=True),
    Column("OUTCOME", kind=ColumnKind.STATUS),
    Column("ENDED", kind=ColumnKind.AGE),
    Column("WORKER"),
    Column("ERROR"),
]

Line = tuple[str, str]


def is_partial(job: JobView) -> bool:
    """Whether a scan lost something of its site."""
    return bool(job.result.get("partial"))


def shown_status(job: JobView) -> str:
    """The status that `siteatlas jobs` prints: partial, if the scan lost something."""
    return "partial" if is_partial(job) else job.status


def write_summary(
    job: JobView,
    attempts: Sequence[AttemptView] = (),
    documents: Sequence[DocumentRead] = (),
) -> None:
    """Print the job with the documents that it could not read, and its attempts if several."""
    console = console_for(sys.stdout)
    width = console.width if is_terminal(sys.stdout) else None
    for label, text in summary_lines(job, datetime.now(UTC), width, documents):
        head = Text().append(f"{label:<{LABEL_WIDTH}}", style="bold")
        console.print(
            head.append_text(_styled_summary_value(label, printable(text))), soft_wrap=True
        )
    if len(attempts) > 1:
        write_table(
            ATTEMPT_COLUMNS,
            ((a.attempt, a.outcome, a.ended_at, a.worker_id, a.error_code) for a in attempts),
        )


def _styled_summary_value(label: str, text: str) -> Text:
    """A value in the summary of `siteatlas jobs show`; a status has its colour."""
    if label != "status":
        return Text(text)
    word, colon, rest = text.partition(":")
    return Text().append_text(status_text(word)).append(colon + rest)


def summary_lines(
    job: JobView,
    now: datetime,
    width: int | None,
    documents: Sequence[DocumentRead] = (),
) -> Iterator[Line]:
    """The lines of a summary; URLs are shortened to a width, if there is one."""
    yield "job", f"{job.id} ({job.job_id})"
    yield "site", job.domain or "-"
    if scan_id := job.result.get("scan_id"):
        yield "scan", str(scan_id)
    yield "status", _status(job)
    yield from _not_read(job, documents, width)
    yield from _found(job, width)
    yield from _times(job, now)
    if job.attempt > 1 or job.status == JobStatus.FAILED:
        yield "attempt", f"{job.attempt} of {job.max_attempts}"
    yield from _error(job)


def _status(job: JobView) -> str:
    """The status line of `siteatlas jobs show`: reasons if partial, progress if running."""
    if is_partial(job):
        return f"partial: {', '.join(job.result.get('reasons') or [])}"
    if job.status == JobStatus.PROCESSING:
        asked = ", asked to stop" if job.cancel_requested_at else ""
        return f"processing: {percent(job.progress)}{asked}"
    return job.status


def _not_read(job: JobView, documents: Sequence[DocumentRead], width: int | None) -> Iterator[Line]:
    label = ""
    for document in islice(documents, MAX_SITEMAPS_SHOWN):
        earlier, label = label, DOCUMENT_LABELS.get(document.state, document.state.value)
        code = document.error_code or document.state.value
        space = None if width is None else width - LABEL_WIDTH - len(code) - 2
        shown = document.url if space is None else shorten_middle(printable(document.url), space)
        yield "" if label == earlier else label, f"{code}  {shown}"
    if documents:
        yield "", f"All sitemaps: siteatlas sitemaps {job.domain}"


def _found(job: JobView, width: int | None) -> Iterator[Line]:
    result = job.result
    urls, sitemaps = int(result.get("url_count") or 0), int(result.get("sitemap_count") or 0)
    if not urls and job.status != JobStatus.COMPLETED:
        return
    yield "found", f"{counted(urls, 'URL')} in {counted(sitemaps, 'sitemap')}"
    distinct = int(result.get("distinct_url_count") or urls)
    if distinct < urls:
        yield "", f"{distinct:,} of them distinct"
    if result.get("max_pages"):
        yield "limit", counted(int(result["max_pages"]), "URL")
    yield from _largest(job, sitemaps, width)


def _largest(job: JobView, total: int, width: int | None) -> Iterator[Line]:
    listed = [
        (str(one.get("url")), f"{int(one.get('url_count') or 0):,}")
        for one in islice(job.result.get("sitemaps") or [], MAX_SITEMAPS_SHOWN)
    ]
    room = max((len(count) for _, count in listed), default=0)
    for number, (url, count) in enumerate(listed):
        space = None if width is None else width - LABEL_WIDTH - room - 2
        shown = url if space is None else shorten_middle(printable(url), space)
        yield "largest" if number == 0 else "", f"{count:>{room}}  {shown}"
    if total > len(listed):
        more = f"… and {total - len(listed):,} more" if listed else f"{total:,} in all"
        yield "", f"{more}: siteatlas sitemaps {job.domain}"


def _times(job: JobView, now: datetime) -> Iterator[Line]:
    yield "created", _moment(job.created_at, now)
    if job.status == JobStatus.PENDING and job.run_at > now:
        yield "due", _moment(job.run_at, now)
    if job.started_at:
        yield "started", _moment(job.started_at, now)
    if job.finished_at:
        took = (job.finished_at - (job.started_at or job.created_at)).total_seconds()
        yield "finished", f"{_moment(job.finished_at, now)}, took {took:.1f} s"


def _moment(moment: datetime, now: datetime) -> str:
    """A time in a job summary: the date, and how long ago that is."""
    return f"{cell_text(moment)} ({relative_time(moment, now)})"


def _error(job: JobView) -> Iterator[Line]:
    if not job.error_code:
        return
    yield "error", f"{job.error_code}: {' '.join((job.error or '').split())}".rstrip(": ")
    advice = advice_for_failed_job(job.error_code)
    if advice:
        yield "", advice
    if job.status in {JobStatus.FAILED, JobStatus.CANCELLED}:
        yield "", f"Try again: siteatlas jobs retry {job.id}"


def advice_for_failed_job(code: str) -> str | None:
    """The advice that `siteatlas jobs show` prints for the error code of a job."""
    kinds = (kind for kind in error_classes() if kind.code == code)
    return next((advice_for(kind()) for kind in kinds), None)


WATCH_SECONDS = 0.5


JOBS: TableLayout[JobView] = TableLayout(
    columns=[
        Column("ID", right=True, value="id"),
        Column("SCAN", right=True, value=lambda j: j.result.get("scan_id")),
        Column("DOMAIN", value="domain"),
        Column("STATUS", kind=ColumnKind.STATUS, value=shown_status),
        Column("PROGRESS", right=True, value=lambda j: percent(j.progress)),
        Column(
            "ATTEMPT", right=True, from_width=WIDE, value=lambda j: f"{j.attempt}/{j.max_attempts}"
        ),
        Column("CREATED", kind=ColumnKind.AGE, value="created_at"),
        Column("FINISHED", kind=ColumnKind.AGE, from_width=WIDE, value="finished_at"),
        Column("ERROR", value=lambda j: j.error_code or ", ".join(j.result.get("reasons") or [])),
    ],
    none="There are no jobs yet.",
    none_matches="No job matches.",
    record=JobView,
    csv=(
        *("job_id", "id", "job_type", "status", "progress", "domain", "domain_id", "created_by"),
        *("result_data", "error", "error_code", "attempt", "max_attempts", "priority", "run_at"),
        *("worker_id", "cancel_requested_at", "created_at", "started_at", "finished_at"),
        *("updated_at", "shared", "requested_by"),
    ),
)
app = typer.Typer(help="Manage jobs.", no_args_is_help=True, rich_markup_mode=None)

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Number or UUID of the job.")]


@app.command("list")
@with_list_options
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
    request: ListRequest,
) -> None:
    """List jobs, newest first."""
    read = partial(_list_jobs, status=status, domain=domain, tag=tag)
    run(print_list(prepare(), request, JOBS.filtered_by(status, domain, tag), read))


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


async def _list_jobs(session: AsyncSession, *, domain: str | None, **wanted: Any) -> Page[JobView]:
    """One page of jobs; raises DomainNotFound if there are none because of the name of the site."""
    page = await list_jobs(session, domain=domain, **wanted)
    if domain is None or page.items or (await list_jobs(session, domain=domain, limit=1)).items:
        return page
    await find_domain_view(session, domain)
    return page


async def _find(
    settings: Settings, ident: str
) -> tuple[JobView, list[AttemptView], list[DocumentRead]]:
    async with opened(settings), get_session() as session, session.begin():
        job = await find_job(session, ident)
        return job, await list_attempts(session, job.id), await _unread_documents(session, job)


async def _unread_documents(session: AsyncSession, job: JobView) -> list[DocumentRead]:
    scan = await find_scan_of_job(session, job.id)
    return [] if scan is None else await list_unread_documents(session, scan.id)


async def _watch(
    settings: Settings, ident: str | None, max_seconds: float | None, fail_on: FailOn
) -> tuple[JobView, list[DocumentRead], bool]:
    """The job once it has ended, or as it is when the time is up, and what it could not read.

    Also whether its site has problems, which are looked for only if they matter.
    """
    async with opened(settings):
        job = await _until_ended(ident or await _newest_job_id(), max_seconds)
        async with get_session() as session, session.begin():
            unread = await _unread_documents(session, job)
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
    waits = "" if served else ", no worker is running"
    return f"Job {job.id} ({job.domain}): {shown_status(job)}, {percent(job.progress)}{waits}"


async def _newest_job_id() -> str:
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
