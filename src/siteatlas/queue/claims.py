"""The claim: which pending jobs run next, taken in one statement.

The order is by priority; within a priority, users take turns. A claim reads `ix_jobs_fair`
(priority, user, time) in three steps, so its cost does not grow with the number of pending jobs:

1. `first_jobs`: a loose index scan finds each user who has pending jobs of a priority.
2. `_next_jobs`: of each of them the first jobs that are due, without those of sites and users that
   have all their slots in this process, and few of any one site.
3. `_in_turn` and `_locked`: the jobs of all users, merged by priority and by turn, are locked one
   after another with SKIP LOCKED until there are enough.

The turn of a job is the number of running jobs of its user plus its position among their pending
ones: 100,000 jobs of one user do not delay the first job of another (decision 0008).

**Addresses.** Many sites may be served from one IP address. If eight or more of the jobs examined
of a user are at the same address, only one worker runs its jobs: the one that has the row of the
address in `address_slots`, a lease which the heartbeat renews. Others pass over these jobs.

A job whose worker died twice is claimed by `claim_alone` instead, since it has to run alone.
The statements of a poll are constants: building one takes about as long as running it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    CTE,
    Integer,
    Interval,
    Select,
    Text,
    Uuid,
    all_,
    any_,
    bindparam,
    case,
    false,
    func,
    or_,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.queue.fence import Claim, Priority, claim_columns, is_pending, queue_literal
from siteatlas.storage.models import SITEMAP_JOB, JobStatus
from siteatlas.storage.schema import ADDRESS_SLOTS, JOBS

# Deaths of its worker, without a finished document in between, after which a job runs alone.
DEATHS_BEFORE_ALONE = 2
RESCUE_BATCH = 100
# If the due jobs are of more pairs of user and priority, the others wait for these. Finding one
# takes some microseconds, so those whose jobs are all to run later are limited too.
MAX_DUE_USERS = 1000
MAX_USERS = 4000
# How many jobs a claim examines in all; the first of each user is always examined.
EXAMINED = 4096
# From so many waiting sites on, an address belongs to one worker.
HOT_ADDRESS = 8
NO_LIMIT = 2**31 - 1


def first_jobs() -> CTE:
    """The first pending job of each user, for each priority: priority, user and time."""
    first = (
        select(
            JOBS.c.priority,
            JOBS.c.created_by,
            JOBS.c.run_at,
            queue_literal(1).label("users_found"),
            _is_due(JOBS.c.run_at).label("due_found"),
        )
        .where(is_pending(JOBS.c))
        .order_by(JOBS.c.priority, JOBS.c.created_by, JOBS.c.run_at)
    )
    users = first.limit(queue_literal(1)).cte("users", recursive=True)
    job = JOBS.alias().c
    after = (
        select(job.priority, job.created_by, job.run_at)
        .where(
            is_pending(job),
            tuple_(job.priority, job.created_by) > tuple_(users.c.priority, users.c.created_by),
        )
        .order_by(job.priority, job.created_by, job.run_at)
        .limit(queue_literal(1))
        .lateral("after")
    )
    step = select(
        after.c.priority,
        after.c.created_by,
        after.c.run_at,
        users.c.users_found + queue_literal(1),
        users.c.due_found + _is_due(after.c.run_at),
    )
    return users.union_all(
        step.select_from(users)
        .join(after, true())
        .where(
            users.c.users_found < queue_literal(MAX_USERS),
            users.c.due_found < queue_literal(MAX_DUE_USERS),
        )
    )


def _is_due(run_at: Any) -> Any:
    return case((run_at <= func.now(), queue_literal(1)), else_=queue_literal(0))


def _due_users() -> CTE:
    """The users of whom a job may be claimed now, for each priority.

    Ordered by priority, as they were found: PostgreSQL 17 and later then use an incremental sort,
    one priority at a time, and do not read the jobs of later priorities once there are enough.
    """
    users = first_jobs()
    at_limit = bindparam("users_at_limit", type_=ARRAY(Uuid()))
    due = select(users.c.priority, users.c.created_by).order_by(users.c.priority)
    return due.where(users.c.run_at <= func.now(), users.c.created_by != all_(at_limit)).cte("due")


def _due_jobs(users: CTE, depth: int) -> Select[Any]:
    """The first due jobs of a user; all columns are in the index.

    The limit is known at planning time: without it the planner expects a tenth of all jobs and
    plans (and compiles) for that. It is no parameter: a prepared statement would be planned again
    at every execution, because its generic plan would not know the limit.
    """
    job = JOBS.alias().c
    at_limit = bindparam("sites_at_limit", type_=ARRAY(Text()))
    return (
        select(job.id, job.run_at, job.site, job.address)
        .where(
            is_pending(job),
            job.priority == users.c.priority,
            job.created_by == users.c.created_by,
            job.run_at <= func.now(),
            job.rescues < queue_literal(DEATHS_BEFORE_ALONE),
            func.coalesce(job.site, queue_literal("")) != all_(at_limit),
            func.coalesce(job.address, queue_literal("")) != all_(_addresses_of_others()),
        )
        .order_by(job.run_at, job.id)
        .limit(queue_literal(depth))
        .correlate(users)
    )


def _addresses_of_others() -> Any:
    held = select(ADDRESS_SLOTS.c.address).where(
        ADDRESS_SLOTS.c.worker != bindparam("claiming_worker"), ADDRESS_SLOTS.c.until > func.now()
    )
    return func.array(held.scalar_subquery(), type_=ARRAY(Text()))


def _next_jobs(users: CTE, depth: int) -> Any:
    """The first due jobs of a user with their positions, the fewer the more users there are.

    At most `max_per_site` of one site.
    """
    due = _due_jobs(users, depth).lateral("first")
    number_of_users = select(func.count()).select_from(users).scalar_subquery()
    part = func.greatest(queue_literal(EXAMINED) // number_of_users, queue_literal(1))
    in_order = (due.c.run_at, due.c.id)
    examined = select(due).order_by(*in_order).limit(part).correlate(users).lateral("examined")
    of_site = func.row_number().over(
        partition_by=examined.c.site, order_by=(examined.c.run_at, examined.c.id)
    )
    at_address = func.count().over(partition_by=examined.c.address)
    ranked = (
        select(examined, of_site.label("of_site"), at_address.label("at_address"))
        .correlate(users)
        .lateral("ranked")
    )
    position = func.row_number().over(order_by=(ranked.c.run_at, ranked.c.id))
    max_per_site = bindparam("max_per_site", type_=Integer())
    is_hot = ranked.c.at_address >= queue_literal(HOT_ADDRESS)
    hot = case((is_hot, ranked.c.address))
    return (
        select(ranked.c.id, ranked.c.run_at, position.label("position"), hot.label("hot"))
        .where(or_(ranked.c.site.is_(None), ranked.c.of_site <= max_per_site))
        .correlate(users)
        .lateral("next")
    )


def _in_turn(users: CTE, depth: int) -> CTE:
    jobs = _next_jobs(users, depth)
    running = _running(users)
    turn = jobs.c.position + func.coalesce(running.c.jobs, queue_literal(0))
    of_user = running.c.created_by == users.c.created_by
    return (
        select(jobs.c.id, users.c.priority, jobs.c.hot)
        .select_from(users.join(jobs, true()).outerjoin(running, of_user))
        .order_by(users.c.priority, turn, jobs.c.run_at, jobs.c.id)
        .cte("candidates")
    )


def _running(users: CTE) -> Any:
    """The number of running jobs of each user, in all processes.

    Nothing is counted if there is one user: there is nobody to take turns with. They are counted
    once, however few the planner expects.
    """
    several_users = select(func.count(users.c.created_by.distinct()) > queue_literal(1))
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
    return select(mine.c.id, candidates.c.hot).select_from(candidates.join(mine, true()))


def _picked(depth: int, *, with_reserve: bool) -> Any:
    """An array of the ids to claim, each locked: at most `max_jobs`.

    `with_reserve`: jobs that are not interactive are picked only until the total reaches
    `max_with_background`.
    """
    candidates = _in_turn(_due_users(), depth)
    max_jobs = bindparam("max_jobs", type_=Integer())
    if not with_reserve:
        return _without_addresses_of_others(_locked(candidates).limit(max_jobs).cte("picked"))
    is_interactive = candidates.c.priority == queue_literal(Priority.INTERACTIVE)
    urgent = _locked(candidates).where(is_interactive).limit(max_jobs).cte("urgent")
    left = bindparam("max_with_background", type_=Integer()) - (
        select(func.count()).select_from(urgent).scalar_subquery()
    )
    others = _locked(candidates).where(~is_interactive)
    background = others.limit(func.greatest(left, queue_literal(0))).cte("background")
    return _without_addresses_of_others(select(urgent).union_all(select(background)).cte("picked"))


def _without_addresses_of_others(picked: CTE) -> Any:
    """The ids of the picked jobs, once this worker has the leases on their hot addresses.

    What another worker leased since the jobs were examined is left out.
    """
    until = func.now() + bindparam("lease", type_=Interval())
    hot = select(picked.c.hot, bindparam("claiming_worker", type_=Text()), until).distinct()
    hot = hot.where(picked.c.hot.is_not(None)).order_by(picked.c.hot)
    new = insert(ADDRESS_SLOTS).from_select(["address", "worker", "until"], hot)
    taken = new.on_conflict_do_update(
        index_elements=["address"],
        set_={"worker": new.excluded.worker, "until": new.excluded.until},
        where=or_(
            ADDRESS_SLOTS.c.worker == new.excluded.worker, ADDRESS_SLOTS.c.until < func.now()
        ),
    )
    leased = taken.returning(ADDRESS_SLOTS.c.address).cte("leased")
    is_mine = picked.c.hot.in_(select(leased.c.address))
    return _ids(select(picked.c.id).where(or_(picked.c.hot.is_(None), is_mine)))


def _ids(jobs: Any) -> Any:
    return func.array(jobs.scalar_subquery(), type_=ARRAY(JOBS.c.id.type))


def _claim_update() -> Any:
    return (
        update(JOBS)
        .values(
            status=queue_literal(JobStatus.PROCESSING),
            fence=JOBS.c.fence + queue_literal(1),
            attempt=JOBS.c.attempt + queue_literal(1),
            worker_id=bindparam("claiming_worker"),
            alone=false(),
            lease_until=func.now() + bindparam("lease", type_=Interval()),
            heartbeat_at=func.now(),
            started_at=func.now(),
            updated_at=func.now(),
        )
        .returning(*claim_columns)
    )


@cache
def _claim_of_jobs(depth: int, *, with_reserve: bool) -> Any:
    """The UPDATE that claims jobs in turn; it examines up to `depth` jobs of each user.

    By primary key alone: the pick has locked the rows, and a second condition on their status
    would let the planner join all pending rows when its statistics are old.
    """
    return _claim_update().where(JOBS.c.id == any_(_picked(depth, with_reserve=with_reserve)))


def examined_depth(max_jobs: int) -> int:
    """How many jobs of one user to examine for `max_jobs`: more, because others claim too.

    A power of two, because it is a part of the statement: there are few statements to prepare.
    """
    return 1 << (2 * max_jobs + 63).bit_length()


def _runs_alone() -> Select[Any]:
    """The pending jobs that are due and have to run alone; read from `ix_jobs_alone`."""
    return select(JOBS.c.id).where(
        is_pending(JOBS.c),
        JOBS.c.rescues >= queue_literal(DEATHS_BEFORE_ALONE),
        JOBS.c.run_at <= func.now(),
    )


def _claim_of_job_that_runs_alone() -> Any:
    pick = _runs_alone().order_by(JOBS.c.priority, JOBS.c.id).limit(queue_literal(1))
    locked = pick.with_for_update(skip_locked=True, key_share=True)
    return _claim_update().where(JOBS.c.id == any_(_ids(locked)))


def _poll() -> Any:
    """The statement that polls the queue: scalar subqueries with a limit, each through an index."""
    expired = (
        select(JOBS.c.id)
        .where(
            JOBS.c.status == queue_literal(JobStatus.PROCESSING),
            JOBS.c.job_type == queue_literal(SITEMAP_JOB),
            JOBS.c.lease_until < func.now(),
            JOBS.c.id != all_(bindparam("ignored", type_=ARRAY(JOBS.c.id.type))),
        )
        .order_by(JOBS.c.id)
        .limit(queue_literal(RESCUE_BATCH))
    )
    job = select(JOBS.c.id).where(is_pending(JOBS.c)).order_by(JOBS.c.priority, JOBS.c.created_by)
    return select(
        _ids(expired).label("expired"),
        _runs_alone().limit(queue_literal(1)).scalar_subquery().label("alone"),
        job.limit(queue_literal(1)).scalar_subquery().label("job"),
    )


def _any_due_job() -> Any:
    users = _due_users()
    first = _due_jobs(users, 1).lateral("first")
    return select(first.c.id).select_from(users.join(first, true())).limit(queue_literal(1))


_find_due_work = _poll()
_find_due_job = _any_due_job()
_claim_alone = _claim_of_job_that_runs_alone()


@dataclass(frozen=True, slots=True)
class DueWork:
    """What a poll finds: jobs whose lease has expired, and whether there are pending jobs.

    `alone`: one is due that has to run alone.
    """

    expired: list[int]
    alone: bool
    jobs: bool


async def find_due_work(session: AsyncSession, *, ignored: Collection[int] = ()) -> DueWork:
    """Look for work without claiming it. Expired leases of `ignored` jobs are left out."""
    row = (await session.execute(_find_due_work, {"ignored": list(ignored)})).one()
    return DueWork(list(row.expired), alone=row.alone is not None, jobs=row.job is not None)


async def claim(
    session: AsyncSession,
    worker_id: str,
    limit: int,
    lease_seconds: float,
    *,
    background: int | None = None,
    users_at_limit: Collection[UUID] = (),
    sites_at_limit: Collection[str] = (),
    max_per_site: int | None = None,
) -> list[Claim]:
    """Claim up to `limit` pending jobs that are due, most urgent first, users in turn.

    Jobs that are not interactive are claimed only until the total reaches `background`. Jobs of
    `users_at_limit` and `sites_at_limit` are skipped, and at most `max_per_site` jobs of a user
    are of one site. Jobs that have to run alone are left to `claim_alone`.
    """
    values = {
        "max_jobs": limit,
        "users_at_limit": list(users_at_limit),
        "sites_at_limit": list(sites_at_limit),
        "max_per_site": max_per_site or NO_LIMIT,
        **_claim_params(worker_id, lease_seconds),
    }
    with_reserve = background is not None and background < limit
    if with_reserve:
        values["max_with_background"] = background
    statement = _claim_of_jobs(examined_depth(limit), with_reserve=with_reserve)
    jobs = (await session.execute(statement, values)).all()
    return [
        Claim.from_job(job)
        for job in sorted(jobs, key=lambda job: (job.priority, job.run_at, job.id))
    ]


async def claim_alone(session: AsyncSession, worker_id: str, lease_seconds: float) -> Claim | None:
    """Claim one job whose worker died twice. It must run alone in its process.

    Only then does another death show that it was this job that killed the worker: the process
    calls `rescues.mark_alone` when the other jobs have ended.
    """
    values = _claim_params(worker_id, lease_seconds)
    job = (await session.execute(_claim_alone, values)).one_or_none()
    return replace(Claim.from_job(job), alone=True) if job else None


async def claim_one(
    session: AsyncSession, job_id: int, worker_id: str, lease_seconds: float
) -> Claim | None:
    """Claim this pending job, whatever its priority and time; None if it is not pending."""
    statement = _claim_update().where(JOBS.c.id == job_id, is_pending(JOBS.c))
    taken = await session.execute(statement, _claim_params(worker_id, lease_seconds))
    job = taken.one_or_none()
    return Claim.from_job(job) if job else None


def _claim_params(worker_id: str, lease_seconds: float) -> dict[str, Any]:
    lease = timedelta(seconds=lease_seconds)
    return {"claiming_worker": worker_id, "lease": lease}


async def has_due_jobs(
    session: AsyncSession,
    worker_id: str,
    *,
    users_at_limit: Collection[UUID] = (),
    sites_at_limit: Collection[str] = (),
) -> bool:
    """Whether a pending job is due that this worker may claim, without these users and sites."""
    values = {
        "claiming_worker": worker_id,
        "users_at_limit": list(users_at_limit),
        "sites_at_limit": list(sites_at_limit),
    }
    return await session.scalar(_find_due_job, values) is not None
