"""Which pending jobs come next: by priority, and within a priority in turn between users.

The pending jobs of one user with one priority are a line. The rank of a job is the number of
running jobs of its user plus its position in the line, so that 100,000 jobs of one user do not
delay the first job of another. The cost depends on the number of users with pending jobs, not on
the number of jobs. `claims` claims what is selected here (decision 0008).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ARRAY,
    CTE,
    Integer,
    Select,
    Text,
    Uuid,
    all_,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    select,
    true,
    tuple_,
)

from siteatlas.queue.fence import Priority
from siteatlas.storage.models import SITEMAP_JOB, JobStatus
from siteatlas.storage.schema import JOBS

# If more lines have a job that is due, the others wait for these.
MAX_DUE_LINES = 1000
# Finding a line takes some microseconds, so lines whose jobs are all to run later are limited too.
MAX_LINES = 4000
FIRST_OF_A_LINE = 64
SUSPECT_RESCUES = 2


def picked(line_length: int, *, with_reserve: bool) -> Any:
    """An array of the ids to claim, each locked: at most `max_jobs`. `users_at_limit` are skipped.

    `with_reserve`: jobs that are not interactive are picked only until the total reaches
    `max_with_background`.
    """
    candidates = _in_turn(_due(pending_lines()), line_length)
    max_jobs = bindparam("max_jobs", type_=Integer())
    if not with_reserve:
        return _ids(select(_locked(candidates).limit(max_jobs).cte("picked").c.id))
    is_interactive = candidates.c.priority == queue_literal(Priority.INTERACTIVE)
    urgent = _locked(candidates).where(is_interactive).limit(max_jobs).cte("urgent")
    left = bindparam("max_with_background", type_=Integer()) - (
        select(func.count()).select_from(urgent).scalar_subquery()
    )
    others = _locked(candidates).where(~is_interactive)
    background = others.limit(func.greatest(left, queue_literal(0))).cte("background")
    return _ids(select(urgent.c.id).union_all(select(background.c.id)))


def _ids(jobs: Any) -> Any:
    return func.array(jobs.scalar_subquery(), type_=ARRAY(JOBS.c.id.type))


def line_length(max_jobs: int) -> int:
    """How far to look into one line for `max_jobs` jobs: further, because others claim too.

    A power of two, because it is a part of the statement: there are few statements to prepare.
    """
    return 1 << (2 * max_jobs + FIRST_OF_A_LINE - 1).bit_length()


def is_pending(job: Any) -> Any:
    """Whether the job with these columns is pending; matches the predicate of `ix_jobs_fair`."""
    return and_(
        job.status == queue_literal(JobStatus.PENDING), job.job_type == queue_literal(SITEMAP_JOB)
    )


def queue_literal(value: str | int) -> Any:
    """A literal for statements on jobs; generic plans with a parameter use no partial index.

    It is a part of the compiled statement. `literal_execute` would insert it at every execution.
    """
    if isinstance(value, int):
        return literal_column(str(int(value)), Integer())
    quoted = value.replace("'", "''")
    return literal_column(f"'{quoted}'", Text())


def pending_lines() -> CTE:
    """Each pair of a priority and a user with pending jobs, and the time of the first of them.

    Found by a loose index scan.
    """
    first = (
        select(
            JOBS.c.priority,
            JOBS.c.created_by,
            JOBS.c.run_at,
            queue_literal(1).label("lines_found"),
            _is_due(JOBS.c.run_at).label("due_found"),
        )
        .where(is_pending(JOBS.c))
        .order_by(JOBS.c.priority, JOBS.c.created_by, JOBS.c.run_at)
    )
    lines = first.limit(queue_literal(1)).cte("lines", recursive=True)
    job = JOBS.alias().c
    after = (
        select(job.priority, job.created_by, job.run_at)
        .where(
            is_pending(job),
            tuple_(job.priority, job.created_by) > tuple_(lines.c.priority, lines.c.created_by),
        )
        .order_by(job.priority, job.created_by, job.run_at)
        .limit(queue_literal(1))
        .lateral("after")
    )
    step = select(
        after.c.priority,
        after.c.created_by,
        after.c.run_at,
        lines.c.lines_found + queue_literal(1),
        lines.c.due_found + _is_due(after.c.run_at),
    )
    return lines.union_all(
        step.select_from(lines)
        .join(after, true())
        .where(
            lines.c.lines_found < queue_literal(MAX_LINES),
            lines.c.due_found < queue_literal(MAX_DUE_LINES),
        )
    )


def _is_due(run_at: Any) -> Any:
    return case((run_at <= func.now(), queue_literal(1)), else_=queue_literal(0))


def _due(lines: CTE) -> CTE:
    """The lines from which a job may be claimed now.

    Ordered by priority, as they were found: PostgreSQL 17 and later then use an incremental sort,
    one priority at a time, and do not read the lines of later priorities once enough jobs are
    found.
    """
    full = bindparam("users_at_limit", type_=ARRAY(Uuid()))
    due = select(lines.c.priority, lines.c.created_by).order_by(lines.c.priority)
    return due.where(lines.c.run_at <= func.now(), lines.c.created_by != all_(full)).cte("due")


def _in_turn(lines: CTE, line_length: int) -> CTE:
    head = _head(lines, line_length)
    running = _running(lines)
    turn = head.c.position + func.coalesce(running.c.jobs, queue_literal(0))
    of_line = running.c.created_by == lines.c.created_by
    return (
        select(head.c.id, lines.c.priority)
        .select_from(lines.join(head, true()).outerjoin(running, of_line))
        .order_by(lines.c.priority, turn, head.c.run_at, head.c.id)
        .cte("candidates")
    )


def _head(lines: CTE, line_length: int) -> Any:
    """The first jobs of a line, the fewer the more lines there are.

    The inner limit is known at planning time: without it the planner expects a tenth of all jobs
    and plans (and compiles) for that. It is no parameter: a prepared statement would be planned
    again at every execution, because its generic plan would not know the limit.
    """
    job = JOBS.alias().c
    first = (
        select(job.id, job.run_at)
        .where(
            is_pending(job),
            job.priority == lines.c.priority,
            job.created_by == lines.c.created_by,
            job.run_at <= func.now(),
            job.rescues < queue_literal(SUSPECT_RESCUES),
        )
        .order_by(job.run_at, job.id)
        .limit(queue_literal(line_length))
        .correlate(lines)
        .lateral("first")
    )
    number_of_lines = select(func.count()).select_from(lines).scalar_subquery()
    # How many jobs a claim examines in all; the first of each line is always examined.
    share = queue_literal(4096) // number_of_lines
    position = func.row_number().over(order_by=(first.c.run_at, first.c.id)).label("position")
    return (
        select(first.c.id, first.c.run_at, position)
        .order_by(first.c.run_at, first.c.id)
        .limit(func.greatest(share, queue_literal(1)))
        .correlate(lines)
        .lateral("head")
    )


def _running(lines: CTE) -> Any:
    """The number of running jobs of each user, in all processes.

    Nothing is counted if all lines are of one user: there is nobody to take turns with. They are
    counted once, however few the planner expects.
    """
    several_users = select(func.count(lines.c.created_by.distinct()) > queue_literal(1))
    return (
        select(JOBS.c.created_by, func.count().label("jobs"))
        .where(
            JOBS.c.status == queue_literal(JobStatus.PROCESSING), several_users.scalar_subquery()
        )
        .group_by(JOBS.c.created_by)
        .cte("running")
        .prefix_with("MATERIALIZED")
    )


def _locked(candidates: CTE) -> Select[Any]:
    """The candidates in their order, each locked as it is reached; locked ones are skipped.

    One subquery by key for each, so that the planner never joins all jobs.
    """
    job = JOBS.alias().c
    mine = (
        select(job.id)
        .where(job.id == candidates.c.id, is_pending(job))
        .with_for_update(skip_locked=True, key_share=True)
        .lateral()
    )
    return select(mine.c.id).select_from(candidates.join(mine, true()))
