"""Joining the active job of a site instead of making a second one."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, SmallInteger, Text, bindparam, case, func, null, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.queue.new_job import NewJob
from siteatlas.queue.statuses import ACTIVE
from siteatlas.storage.models import SITEMAP_JOB, Job, JobStatus

FIND_ACTIVE = (
    select(Job)
    .where(
        Job.dedup_key == bindparam("site"),
        Job.job_type == SITEMAP_JOB,
        Job.status.in_(ACTIVE),
    )
    .execution_options(populate_existing=True)
)


def _widening() -> Any:
    """Make a waiting job satisfy one more submission, in one statement: many may join at once.

    No limit is the widest one, and the whole site is more than a document of it. Gives nothing
    when there is nothing to change.
    """
    limit = Job.result_data["max_pages"].astext.cast(BigInteger)
    wanted_limit = bindparam("wanted_limit", type_=BigInteger())
    wider = limit.is_not(None) & (wanted_limit.is_(None) | (wanted_limit > limit))
    wanted_document = bindparam("wanted_document", type_=Text())
    whole = Job.job_metadata["document"].astext.is_not(None) & wanted_document.is_(None)
    wanted_priority = bindparam("wanted_priority", type_=SmallInteger())
    base_url = bindparam("wanted_base_url", type_=Text())
    no_document = func.jsonb_build_object("document", null(), "base_url", base_url)
    new_limit = func.jsonb_build_object("max_pages", wanted_limit)
    return (
        update(Job)
        .where(Job.id == bindparam("of_job"), Job.status == JobStatus.PENDING)
        .where(wider | whole | (wanted_priority < Job.priority))
        .values(
            result_data=case((wider, Job.result_data.op("||")(new_limit)), else_=Job.result_data),
            job_metadata=case(
                (whole, Job.job_metadata.op("||")(no_document)), else_=Job.job_metadata
            ),
            priority=func.least(Job.priority, wanted_priority),
            updated_at=func.now(),
        )
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )


WIDEN = _widening()


async def join(session: AsyncSession, new: NewJob) -> Job | None:
    """The active job of the site; while it waits, it takes over the wider wish of the two."""
    job = await _active(session, new.domain)
    if job is None or job.status != JobStatus.PENDING:
        return job
    wish = {
        "of_job": job.id,
        "wanted_limit": new.max_pages,
        "wanted_priority": int(new.priority),
        "wanted_document": new.document,
        "wanted_base_url": new.base_url,
    }
    widened = (await session.execute(WIDEN, wish)).scalar_one_or_none()
    return widened or await _active(session, new.domain)


async def _active(session: AsyncSession, site: str) -> Job | None:
    return (await session.scalars(FIND_ACTIVE, {"site": site})).one_or_none()
