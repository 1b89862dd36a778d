"""The job table under its older names: a guarded front of the verbs in this room.

New code calls the verbs. What comes through here can set a job back or end it by hand, but never
while a worker holds its lease, and it cannot start one: only a claim does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import func, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import JobActive, JobDataInvalid, JobNotFound, JobStateConflict
from siteatlas.net.address import parse_site
from siteatlas.queue.new_job import NewJob, Submitted
from siteatlas.queue.statuses import FINAL, parse_status
from siteatlas.queue.submission import create
from siteatlas.storage.models import LOCAL_USER_ID, Job, JobStatus


class JobService:
    """Creates, finds and updates jobs. The caller owns the transaction."""

    async def create(self, session: AsyncSession, data: Mapping[str, Any]) -> Submitted:
        """Queue a job from `{job_id, job_type, status, created_by, result_data}`."""
        result_data = data.get("result_data") or {}
        domain = result_data.get("domain")
        if not domain:
            raise JobDataInvalid
        address = parse_site(domain)
        return await create(
            session,
            NewJob(
                domain=address.domain,
                base_url=domain,
                domain_id=data.get("domain_id"),
                created_by=UUID(str(data.get("created_by") or LOCAL_USER_ID)),
                max_pages=result_data.get("max_pages"),
                job_id=UUID(str(data["job_id"])) if data.get("job_id") else None,
            ),
        )

    async def get_pending_jobs(
        self, session: AsyncSession, job_type: str = "sitemap", limit: int = 10
    ) -> Sequence[Job]:
        """Jobs that wait, in the order in which they will be claimed. Looking claims nothing."""
        statement = (
            select(Job)
            .where(Job.status == JobStatus.PENDING, Job.job_type == job_type)
            .order_by(Job.priority, Job.run_at, Job.id)
            .limit(limit)
        )
        return (await session.execute(statement)).scalars().all()

    async def get_by_id(self, session: AsyncSession, job_id: int | UUID | str) -> Job:
        """A job by its number or its UUID."""
        statement = select(Job).where(_names(job_id))
        job = (await session.execute(statement)).scalar_one_or_none()
        if job is None:
            raise JobNotFound
        return job

    async def update_status(
        self,
        session: AsyncSession,
        job_id: int | UUID | str,
        status: str,
        *,
        progress: float | None = None,
        result_data: dict[str, Any] | None = None,
        error: str | None = None,
    ) -> Job:
        """Set the status of a job by hand; refused while a worker holds its lease."""
        word = parse_status(status)
        if word is JobStatus.PROCESSING:
            raise JobStateConflict("Only the claim of a worker starts a job.")
        values: dict[str, Any] = {"status": word, "updated_at": func.now(), "error": error}
        if word == JobStatus.PENDING:
            values |= {"attempt": 0, "rescues": 0, "run_at": func.now(), "finished_at": None}
        if word in FINAL:
            values["finished_at"] = func.now()
        if progress is not None:
            values["progress"] = progress
        if result_data is not None:
            values["result_data"] = result_data
        unheld = or_(Job.lease_until.is_(None), Job.lease_until < func.now())
        statement = (
            update(Job)
            .where(_names(job_id), unheld)
            .values(**values, fence=Job.fence + 1, lease_until=None)
            .returning(Job)
            .execution_options(synchronize_session=False, populate_existing=True)
        )
        try:
            async with session.begin_nested():
                job = (await session.execute(statement)).scalar_one_or_none()
        except IntegrityError as taken:
            raise JobActive from taken
        if job is None:
            await self.get_by_id(session, job_id)
            raise JobStateConflict("A worker holds this job. Cancel it first.")
        return job


def _names(job_id: int | UUID | str) -> Any:
    if isinstance(job_id, int) or (isinstance(job_id, str) and job_id.isdecimal()):
        return Job.id == int(job_id)
    return Job.job_id == UUID(str(job_id))


job_service = JobService()
