"""`siteatlas scheduler`: run the scheduler once, or show its state."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import NO_WORKER, opened
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.options import JsonOption
from siteatlas.cli.terminal.output import (
    Column,
    ColumnKind,
    print_message,
    write_details,
    write_json,
    write_table,
)
from siteatlas.net.egress import EgressPolicy
from siteatlas.queue.metrics import oldest_pending_at
from siteatlas.queue.retention import Retention
from siteatlas.queue.views import WorkerView, count_jobs_by_status, list_workers
from siteatlas.scheduler.sitemap_scheduler import TickReport, process_pending_sitemaps, prune
from siteatlas.settings import Settings
from siteatlas.storage.models import JobStatus
from siteatlas.storage.session import get_session

WORKER_COLUMNS = [
    Column("WORKER"),
    Column("SLOTS", right=True),
    Column("RUNNING", right=True),
    Column("SEEN (S AGO)", right=True),
    Column("LAST TICK", kind=ColumnKind.AGE),
    Column("NEXT TICK", kind=ColumnKind.AGE),
]
OUTCOME_COLUMNS = [Column("JOB", kind=ColumnKind.NAME), Column("OUTCOME", kind=ColumnKind.STATUS)]

app = typer.Typer(
    help="Control the scheduler.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """How the scheduler is doing; a process that was not seen for a minute counts as gone.

    `last_tick_at` may be of a process that is gone, all else is of the living ones.
    `oldest_pending_at` is since when the first job that could run now has been waiting: one that
    waits for its time is not late.
    """

    jobs: dict[str, int]
    oldest_pending_at: datetime | None
    last_tick_at: datetime | None
    next_tick_at: datetime | None
    workers: list[WorkerView]


@app.command("run-once")
def run_once(
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            help="Maximum number of jobs to run. Default: SITEMAP_SCHEDULER_BATCH_SIZE.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Queue due scans, run the queued jobs, and prune old records.

    Wait until the jobs have ended; exit with 1 if one of them failed.
    """
    settings = prepare()
    report = run(_run_once_and_prune(settings, limit or settings.scheduler_batch_size))
    if as_json:
        write_json(report)
    else:
        _print_run_once_report(report)
    if JobStatus.FAILED in report.outcomes.values():
        raise typer.Exit(1)


def _print_run_once_report(report: TickReport) -> None:
    """Print what the command `siteatlas scheduler run-once` did."""
    write_details(
        [
            ("looked_for", report.looked_for),
            ("due_enqueued", report.due_enqueued),
            ("found", report.found),
        ]
    )
    if report.outcomes:
        write_table(OUTCOME_COLUMNS, report.outcomes.items())


@app.command()
def status(as_json: JsonOption = False) -> None:
    """Show the state of the scheduler, the workers and the queue.

    This includes the last and the next tick (a periodic run of the scheduler), the oldest pending
    job, and the number of jobs by status.
    """
    state = run(_load_state(prepare()))
    if as_json:
        write_json(state)
        return
    write_state(state)


def write_state(state: SchedulerState) -> None:
    """Print the state of the scheduler as text."""
    write_details(
        [
            *((f"jobs {word}", count) for word, count in state.jobs.items()),
            ("oldest pending", state.oldest_pending_at),
            ("last tick", state.last_tick_at),
            ("next tick", state.next_tick_at),
            ("workers", len(state.workers)),
        ]
    )
    if not state.workers:
        print_message(NO_WORKER)
        return
    write_table(WORKER_COLUMNS, map(_worker_row, state.workers))


def _worker_row(worker: WorkerView) -> list[object]:
    return [
        worker.id,
        worker.slots,
        worker.running,
        round(worker.seconds_since_seen),
        worker.last_tick_at,
        _next_tick(worker),
    ]


async def _run_once_and_prune(settings: Settings, limit: int) -> TickReport:
    """The work of the command `siteatlas scheduler run-once`, with the database open."""
    policy = EgressPolicy.from_text(settings.egress_allow)
    async with opened(settings):
        report = await process_pending_sitemaps(limit, settings=settings, policy=policy)
        await prune(Retention.of(settings))
        return report


async def _load_state(settings: Settings) -> SchedulerState:
    async with opened(settings):
        return await scheduler_state()


async def scheduler_state() -> SchedulerState:
    """Read the state of the scheduler from the bound database."""
    async with get_session() as session, session.begin():
        oldest = await oldest_pending_at(session)
        workers = await list_workers(session)
        jobs = await count_jobs_by_status(session)
    living = [worker for worker in workers if worker.alive]
    ticks = [worker.last_tick_at for worker in workers if worker.last_tick_at]
    coming = [_next_tick(worker) for worker in living]
    return SchedulerState(
        jobs=jobs,
        oldest_pending_at=oldest,
        last_tick_at=max(ticks, default=None),
        next_tick_at=min(filter(None, coming), default=None),
        workers=living,
    )


def _next_tick(worker: WorkerView) -> datetime | None:
    """When a process ticks next; since it reported that, it may have ticked again."""
    last, coming, now = worker.last_tick_at, worker.next_tick_at, datetime.now(UTC)
    if last is None or coming is None or coming <= last or coming >= now:
        return coming
    return coming + (coming - last) * ((now - coming) // (coming - last) + 1)
