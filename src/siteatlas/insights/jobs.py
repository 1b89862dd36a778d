"""Read statements for jobs: one job, lists of jobs, attempts and counts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import InputError, JobNotFound
from siteatlas.insights.page_reading import read_page
from siteatlas.insights.pages import (
    CursorScope,
    Page,
    bigint_key,
    page_size,
    parse_bigint,
)
from siteatlas.insights.tagged_domains import tagged_domains
from siteatlas.insights.views import select_view
from siteatlas.net.address import parse_site
from siteatlas.queue.statuses import parse_status
from siteatlas.storage.autocommit import Reader
from siteatlas.storage.models import SITEMAP_JOB, AttemptOutcome, Domain, Job, JobAttempt, JobStatus

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
MAX_ATTEMPTS_SHOWN = 100


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as others see it."""

    job_id: UUID
    id: int
    job_type: str
    status: JobStatus
    progress: float
    domain: str | None
    domain_id: UUID | None
    created_by: UUID
    result_data: dict[str, Any] | None
    error: str | None
    error_code: str | None
    attempt: int
    max_attempts: int
    priority: int
    run_at: datetime
    worker_id: str | None
    cancel_requested_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    shared: bool


@dataclass(frozen=True, slots=True)
class AttemptView:
    """How one attempt at a job ended."""

    attempt: int
    worker_id: str | None
    started_at: datetime | None
    ended_at: datetime
    outcome: AttemptOutcome
    error_code: str | None
    error: str | None


def parse_job_ident(text: str) -> int | UUID:
    """Parse the number or UUID by which a reader looks up a job."""
    if _UUID.fullmatch(text):
        return UUID(text)
    try:
        return parse_bigint(text)
    except ValueError as error:
        raise InputError("A job is identified by its number or its UUID.") from error


async def find_job(session: Reader, ident: str) -> JobView:
    """The job with this number or UUID."""
    key = parse_job_ident(ident)
    statement = JOB_BY_UUID if isinstance(key, UUID) else JOB_BY_NUMBER
    row = (await session.execute(statement, {"key": key})).one_or_none()
    if row is None:
        raise JobNotFound
    return JobView(*row)


async def list_jobs(
    session: AsyncSession,
    *,
    status: str | None = None,
    domain: str | None = None,
    tag: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[JobView]:
    """Jobs, newest first; `domain` is what a person types, `status` may be an older word."""
    wanted = parse_status(status) if status is not None else None
    site = parse_site(domain).domain if domain is not None else None
    scope = CursorScope("jobs", (wanted and wanted.value, site, tag))
    before = scope.read(cursor, bigint_key)
    size = page_size(limit)
    statement = _jobs().order_by(Job.id.desc())
    if wanted is not None:
        statement = statement.where(Job.status == wanted)
    if site is not None:
        owner = select(Domain.id).where(Domain.domain == site).scalar_subquery()
        statement = statement.where(Job.domain_id == owner)
    if tag is not None:
        statement = statement.where(Job.domain_id.in_(tagged_domains(tag)))
    if before is not None:
        statement = statement.where(Job.id < before)
    return await read_page(session, statement, size, JobView, lambda row: scope.write(row.id))


async def list_attempts(session: AsyncSession, job_id: int) -> list[AttemptView]:
    """The ended attempts at a job, the latest first."""
    statement = (
        select_view(AttemptView, JobAttempt)
        .where(JobAttempt.job_id == job_id)
        .order_by(JobAttempt.fence.desc())
        .limit(MAX_ATTEMPTS_SHOWN)
    )
    return [AttemptView(*row) for row in await session.execute(statement)]


async def count_jobs_by_status(session: AsyncSession) -> dict[str, int]:
    """How many jobs are in each state; every state is there."""
    statement = (
        select(Job.status, func.count().label("number"))
        .where(Job.job_type == SITEMAP_JOB)
        .group_by(Job.status)
    )
    counted = {row.status: row.number for row in await session.execute(statement)}
    return {status.value: counted.get(status, 0) for status in JobStatus}


def _jobs() -> Select[*tuple[Any, ...]]:
    """Sitemap jobs with the name of their site, which stays known when the site is deleted."""
    named = func.coalesce(Domain.domain, Job.result_data["domain"].astext)
    kept = (Domain.id == Job.domain_id) & Domain.deleted_at.is_(None)
    statement = select_view(JobView, Job, domain=named)
    return statement.outerjoin(Domain, kept).where(Job.job_type == SITEMAP_JOB)


# Made once: clients ask for the status of a job more often than for anything else, and making the
# statement takes longer than running it.
JOB_BY_UUID = _jobs().where(Job.job_id == bindparam("key"))
JOB_BY_NUMBER = _jobs().where(Job.id == bindparam("key"))
