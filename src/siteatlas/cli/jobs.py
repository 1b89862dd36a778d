"""`siteatlas jobs`: the queue, as people see and steer it."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from functools import partial
from typing import Annotated

import typer

from siteatlas.cli.border import run
from siteatlas.cli.listing import ListRequest, Shape, write_list
from siteatlas.cli.opening import opened
from siteatlas.cli.options import (
    AllOption,
    CursorOption,
    FormatOption,
    JobArgument,
    JsonOption,
    LimitOption,
)
from siteatlas.cli.output import (
    WIDE,
    Column,
    Kind,
    ListFormat,
    percent,
    say,
    write_details,
    write_json,
    write_table,
)
from siteatlas.cli.preparation import prepare
from siteatlas.cli.progress import ProgressLine
from siteatlas.errors import JobNotFound
from siteatlas.insights.jobs import (
    AttemptView,
    JobView,
    find_job,
    list_attempts,
    list_jobs,
)
from siteatlas.insights.pages import DEFAULT_LIMIT, Page
from siteatlas.queue.steering import cancel as cancel_job
from siteatlas.queue.steering import retry as retry_job
from siteatlas.settings import Settings
from siteatlas.storage.models import JobStatus
from siteatlas.storage.session import get_session

WATCH_SECONDS = 0.5
ACTIVE = {JobStatus.PENDING, JobStatus.PROCESSING}


def _shown_status(job: JobView) -> str:
    """A scan that lost something says so."""
    return "partial" if (job.result_data or {}).get("partial") else job.status


SHAPE: Shape[JobView] = Shape(
    columns=[
        Column("ID", right=True),
        Column("DOMAIN"),
        Column("STATUS", kind=Kind.STATUS),
        Column("PROGRESS", right=True),
        Column("ATTEMPT", right=True, from_width=WIDE),
        Column("CREATED", kind=Kind.AGE),
        Column("FINISHED", kind=Kind.AGE, from_width=WIDE),
        Column("ERROR"),
    ],
    row=lambda j: (
        j.id,
        j.domain,
        _shown_status(j),
        percent(j.progress),
        f"{j.attempt}/{j.max_attempts}",
        j.created_at,
        j.finished_at,
        j.error_code or ", ".join((j.result_data or {}).get("reasons") or []),
    ),
    none="There is no job yet.",
    none_matches="No job matches.",
    record=JobView,
)
ATTEMPT_COLUMNS = [
    Column("ATTEMPT", right=True),
    Column("OUTCOME"),
    Column("ENDED"),
    Column("WORKER"),
    Column("ERROR"),
]

app = typer.Typer(
    help="The queue: what waits, runs and has ended.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("list")
def list_(
    *,
    status: Annotated[str | None, typer.Option(help="Only jobs of this status.")] = None,
    domain: Annotated[str | None, typer.Option(help="Only jobs of this site.")] = None,
    limit: LimitOption = DEFAULT_LIMIT,
    cursor: CursorOption = None,
    everything: AllOption = False,
    format: FormatOption = ListFormat.TABLE,
    as_json: JsonOption = False,
) -> None:
    """List jobs, the newest first."""
    settings = prepare()
    request = ListRequest.of(
        format, as_json=as_json, limit=limit, cursor=cursor, everything=everything
    )
    run(_list(settings, request, status, domain))


@app.command()
def show(job: JobArgument, as_json: JsonOption = False) -> None:
    """Show one job and its attempts."""
    found, attempts = run(_find(prepare(), job))
    if as_json:
        write_json(found)
        return
    _write(found)
    if attempts:
        write_table(
            ATTEMPT_COLUMNS,
            ((a.attempt, a.outcome, a.ended_at, a.worker_id, a.error_code) for a in attempts),
        )


@app.command()
def watch(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="Its number or UUID; else the newest.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Follow a job until it ends; exit code 0 if it completed, 1 if not."""
    ended = run(_watch(prepare(), job))
    if as_json:
        write_json(ended)
    else:
        _write(ended)
    raise typer.Exit(0 if ended.status == JobStatus.COMPLETED else 1)


@app.command()
def retry(job: JobArgument, as_json: JsonOption = False) -> None:
    """Queue a failed or cancelled job again."""
    changed = run(_retry(prepare(), job))
    _write_changed(changed, as_json=as_json)


@app.command()
def cancel(job: JobArgument, as_json: JsonOption = False) -> None:
    """Cancel a job; a running one stops within seconds."""
    changed = run(_cancel(prepare(), job))
    _write_changed(changed, as_json=as_json)


def _write(job: JobView) -> None:
    write_details((field.name, getattr(job, field.name)) for field in fields(job))


def _write_changed(job: JobView, *, as_json: bool) -> None:
    if as_json:
        write_json(job)
        return
    asked = job.status == JobStatus.PROCESSING and job.cancel_requested_at is not None
    say(f"Job {job.id} ({job.domain}) is {'asked to stop' if asked else job.status}.")


async def _list(
    settings: Settings, request: ListRequest, status: str | None, domain: str | None
) -> None:
    async def fetch(limit: int, cursor: str | None) -> Page[JobView]:
        async with get_session() as session, session.begin():
            return await list_jobs(
                session, status=status, domain=domain, limit=limit, cursor=cursor
            )

    async with opened(settings):
        await write_list(request, fetch, SHAPE.filtered_by(status, domain))


async def _find(settings: Settings, ident: str) -> tuple[JobView, list[AttemptView]]:
    async with opened(settings), get_session() as session, session.begin():
        job = await find_job(session, ident)
        return job, await list_attempts(session, job.id)


async def _watch(settings: Settings, ident: str | None) -> JobView:
    async with opened(settings):
        ident = ident or await _newest()
        with ProgressLine() as progress:
            while True:
                async with get_session() as session, session.begin():
                    job = await find_job(session, ident)
                if job.status not in ACTIVE:
                    return job
                progress.show(partial(_progress_text, job))
                await asyncio.sleep(WATCH_SECONDS)


def _progress_text(job: JobView) -> str:
    return f"Job {job.id} ({job.domain}): {_shown_status(job)}, {percent(job.progress)}"


async def _newest() -> str:
    async with get_session() as session, session.begin():
        page = await list_jobs(session, limit=1)
    if not page.items:
        raise JobNotFound("There is no job yet.")
    return str(page.items[0].id)


async def _retry(settings: Settings, ident: str) -> JobView:
    async with opened(settings), get_session() as session, session.begin():
        job = await find_job(session, ident)
        await retry_job(session, job.id)
        return await find_job(session, ident)


async def _cancel(settings: Settings, ident: str) -> JobView:
    async with opened(settings), get_session() as session, session.begin():
        job = await find_job(session, ident)
        await cancel_job(session, job.id)
        return await find_job(session, ident)
