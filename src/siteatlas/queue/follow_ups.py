"""The follow-up of a job: the scheduled scan that became due while a job of a user was active.

It is queued in the transaction that ends that job, so no other job of the site can come first.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import ARRAY, ColumnElement, Update, any_, bindparam, func, select, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.queue.new_job import NewJob, Priority
from siteatlas.queue.statuses import ACTIVE_STATUSES, UNPUBLISHED
from siteatlas.queue.submission import create
from siteatlas.storage.models import SYSTEM_USER_ID, Job
from siteatlas.storage.statements.domains import SCHEDULED
from siteatlas.storage.tables import DOMAINS, JOBS

FOLLOW_UP = "follow_up"
HAS_FOLLOW_UP = func.coalesce(JOBS.c.job_metadata[FOLLOW_UP].as_boolean(), False)


def _note(*, follow_up: bool) -> Update:
    """The statement that notes on jobs whether they have a follow-up."""
    metadata = func.coalesce(JOBS.c.job_metadata, func.jsonb_build_object(), type_=JSONB())
    noted = func.jsonb_build_object(FOLLOW_UP, follow_up, type_=JSONB())
    return update(JOBS).values(job_metadata=metadata.op("||")(noted))


def _request() -> Update:
    """The statement that notes follow-ups on active jobs, locked in the order of heartbeats."""
    active = (
        select(JOBS.c.id)
        .where(
            JOBS.c.id == any_(bindparam("of_jobs", type_=ARRAY(JOBS.c.id.type))),
            JOBS.c.status.in_(ACTIVE_STATUSES),
        )
        .order_by(JOBS.c.id)
        .with_for_update(key_share=True)
        .cte("active")
    )
    return _note(follow_up=True).where(JOBS.c.id == active.c.id).returning(JOBS.c.id)


REQUEST = _request()
# Each follow-up is queued once: the job may be retried and end again.
TAKE = (
    _note(follow_up=False)
    .where(
        JOBS.c.id == bindparam("of_job"),
        HAS_FOLLOW_UP,
        DOMAINS.c.domain == JOBS.c.dedup_key,
        *SCHEDULED,
    )
    .returning(JOBS.c.max_attempts, DOMAINS)
)


async def request_follow_ups(session: AsyncSession, job_ids: Collection[int]) -> set[int]:
    """Have a scheduled scan queued when each of these jobs ends, unless the job counts as one.

    Return the ids of the jobs that have not ended already. To be the last statement of a
    transaction: heartbeats and writes of the jobs wait for it.
    """
    if not job_ids:
        return set()
    return set((await session.scalars(REQUEST, {"of_jobs": list(job_ids)})).all())


def without_follow_up() -> ColumnElement[Any]:
    """SQL expression: the metadata of a job that is queued again by hand, whose site is not due."""
    return JOBS.c.job_metadata.op("-")(FOLLOW_UP)


async def queue_follow_up_if_unpublished(session: AsyncSession, job: Job) -> None:
    """Queue the follow-up of a job, if it has one and has failed or was cancelled."""
    if job.status in UNPUBLISHED and (job.job_metadata or {}).get(FOLLOW_UP):
        await queue_follow_up(session, job.id)


async def queue_follow_up(session: AsyncSession, job_id: int) -> None:
    """Queue the follow-up of a job that has ended, if its site is still watched.

    The row of the site must have been locked before that of the job.
    """
    site = (await session.execute(TAKE, {"of_job": job_id})).one_or_none()
    if site is None:
        return
    new = NewJob(
        domain=site.domain,
        base_url=site.base_url,
        created_by=SYSTEM_USER_ID,
        domain_id=site.id,
        max_pages=site.max_pages,
        priority=Priority.SCHEDULED,
        max_attempts=site.max_attempts,
    )
    await create(session, new)
