"""The job table under its older names: a guarded facade of the operations in this package.

New code calls the verbs. What comes through here can set a job back or end it by hand, but never
while a worker holds its lease, and it cannot start one: only a claim does. Jobs of other types can
be created, found and updated here for programs that share the table; nobody here works on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import func, literal, or_, select, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.domains import register_domain
from siteatlas.errors import (
    InputError,
    JobActive,
    JobDataInvalid,
    JobNotFound,
    JobStateConflict,
)
from siteatlas.net.address import parse_site
from siteatlas.queue.fence import NewJob, SubmittedJob, parse_status, queue_literal
from siteatlas.queue.operator_actions import requeued_values
from siteatlas.queue.submission import create
from siteatlas.storage.models import LOCAL_USER_ID, SITEMAP_JOB, Job, JobStatus, User


class JobService:
    """Creates, finds and updates jobs. The caller owns the transaction."""

    async def create(self, session: AsyncSession, data: Mapping[str, Any]) -> SubmittedJob:
        """Queue a job from `{job_id, job_type, status, created_by, result_data}`.

        A sitemap job names its site in `result_data.domain`; the site is registered, and an
        active job of the same site is joined. A job of another type is stored unchanged.
        """
        _require_new_job_pending(data.get("status"))
        job_id = _uuid("job_id", data.get("job_id"))
        created_by = _uuid("created_by", data.get("created_by")) or LOCAL_USER_ID
        if await session.get(User, created_by) is None:
            raise InputError(f"created_by {str(created_by)!r} is not a user.")
        job_type = data.get("job_type") or SITEMAP_JOB
        if job_type != SITEMAP_JOB:
            return await _create_other(session, str(job_type), data, job_id, created_by)
        result_data = data.get("result_data") or {}
        domain = result_data.get("domain")
        if not domain:
            raise JobDataInvalid
        address = parse_site(domain)
        domain_id = _uuid("domain_id", data.get("domain_id"))
        if domain_id is None:
            domain_id = (await register_domain(session, address, created_by=created_by)).id
        return await create(
            session,
            NewJob(
                domain=address.domain,
                base_url=domain,
                domain_id=domain_id,
                created_by=created_by,
                max_pages=result_data.get("max_urls", result_data.get("max_pages")),
                job_id=job_id,
            ),
        )

    async def get_pending_jobs(
        self, session: AsyncSession, job_type: str = "sitemap", limit: int = 10
    ) -> Sequence[Job]:
        """Pending jobs, most urgent first, then oldest first. Looking claims nothing.

        A claim follows the same order within the jobs of one user, and lets users take turns.
        """
        statement = (
            select(Job)
            .where(Job.status == queue_literal(JobStatus.PENDING), Job.job_type == job_type)
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
        """Set the status of a job by hand; refused while a worker holds its lease.

        `result_data` is added to what is stored. A job that is set back to pending starts over,
        without progress, error or result.
        """
        word = parse_status(status)
        if word is JobStatus.PROCESSING:
            raise JobStateConflict("A job can only be started by a worker.")
        values = _job_values_for_status(word)
        given = {"progress": progress, "error": error}
        values |= {name: value for name, value in given.items() if value is not None}
        if result_data is not None:
            stored = func.coalesce(values.get("result_data", Job.result_data), literal({}, JSONB()))
            values["result_data"] = stored.op("||")(literal(result_data, JSONB()))
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
            raise JobStateConflict("A worker is running this job. Cancel it first.")
        return job


def _job_values_for_status(word: JobStatus) -> dict[str, Any]:
    if word is JobStatus.PENDING:
        return requeued_values()
    values: dict[str, Any] = {"status": word, "updated_at": func.now(), "error": None}
    if word is not JobStatus.FAILED:
        values["error_code"] = None
    return values | {"finished_at": func.now()}


def _names(job_id: int | UUID | str) -> Any:
    if isinstance(job_id, int) or (isinstance(job_id, str) and job_id.isdecimal()):
        return Job.id == int(job_id)
    try:
        return Job.job_id == UUID(str(job_id))
    except ValueError as error:
        raise InputError(
            f"{job_id!r} is not a job. A job is identified by its number or its UUID."
        ) from error


def _uuid(name: str, value: Any) -> UUID | None:
    if not value:
        return None
    try:
        return UUID(str(value))
    except ValueError as error:
        raise InputError(f"{name} {str(value)!r} is not a UUID.") from error


def _require_new_job_pending(status: Any) -> None:
    if status is not None and parse_status(str(status)) is not JobStatus.PENDING:
        raise InputError(
            f"A new job cannot be {status}: it is created pending, and a worker takes it from "
            "there. Leave the status out, or change it later with update_status."
        )


async def _create_other(
    session: AsyncSession, job_type: str, data: Mapping[str, Any], job_id: UUID | None, owner: UUID
) -> SubmittedJob:
    """Insert a job of another type than sitemap scans; no worker claims it."""
    job = Job(
        job_type=job_type,
        created_by=owner,
        domain_id=_uuid("domain_id", data.get("domain_id")),
        result_data=data.get("result_data"),
    )
    if job_id is not None:
        job.job_id = job_id
    session.add(job)
    await session.flush()
    await session.refresh(job)
    return SubmittedJob.from_row(job, deduplicated=False)


job_service = JobService()
