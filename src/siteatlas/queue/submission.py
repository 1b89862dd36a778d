"""Creates jobs: one active job per site, however often it is submitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Row, Select, bindparam, select, text, true
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import ConflictError
from siteatlas.net.address import WebAddress
from siteatlas.queue.dedup import find_sufficient_jobs, join
from siteatlas.queue.new_job import NewJob, Priority, SubmittedJob
from siteatlas.scanner.child_filter import ChildFilter
from siteatlas.settings import DEFAULT_MAX_ATTEMPTS
from siteatlas.storage.models import SYSTEM_USER_ID, Domain, Job
from siteatlas.storage.models.job import ACTIVE_CONDITION as ACTIVE_PREDICATE
from siteatlas.storage.statements.domains import (
    DEFAULT_INTERVAL_HOURS,
    register_domain,
    registration,
    registration_values,
)
from siteatlas.storage.tables import JOBS

JOIN_TRIES = 5
# The columns that `NewJob.columns` returns when no id is given.
JOB_COLUMNS = (
    "domain_id",
    "created_by",
    "dedup_key",
    "priority",
    "max_attempts",
    "result_data",
    "job_metadata",
)


def _unless_active(statement: Insert) -> Insert:
    """Insert nothing if the site has an active job."""
    return statement.on_conflict_do_nothing(
        index_elements=[Job.dedup_key], index_where=text(ACTIVE_PREDICATE)
    )


def _registration_and_job(*, watch: bool, scheme_given: bool) -> Select[Any]:
    """The statement that registers a site and queues its job, unless it has an active one."""
    upsert = registration(watch=watch, scheme_given=scheme_given)
    site = upsert.returning(Domain.id).cte("site")
    row: dict[str, ColumnElement[Any]] = {
        name: bindparam(f"job_{name}", type_=JOBS.c[name].type) for name in JOB_COLUMNS
    }
    row["domain_id"] = site.c.id
    new = _unless_active(insert(Job).from_select(list(row), select(*row.values())))
    job = new.returning(Job.id, Job.job_id, Job.status, Job.created_at, Job.result_data).cte("job")
    return select(site.c.id.label("domain_id"), job).select_from(site.outerjoin(job, true()))


INSERT_UNLESS_ACTIVE = _unless_active(insert(Job)).returning(Job)
REGISTER_AND_INSERT = {
    (watch, scheme_given): _registration_and_job(watch=watch, scheme_given=scheme_given)
    for watch, scheme_given in product((False, True), repeat=2)
}


@dataclass(frozen=True, slots=True)
class SiteSubmission:
    """One statement that registers a site and queues its job unless the site has an active one."""

    new_job: NewJob
    statement: Select[Any]
    values: dict[str, Any]

    def queued(self, row: Row[Any]) -> SubmittedJob | None:
        """The job that the statement queued; None if an active one has to be joined."""
        return None if row.id is None else SubmittedJob.from_row(row, deduplicated=False)


async def submit_site(
    session: AsyncSession,
    address: WebAddress,
    *,
    created_by: UUID,
    max_pages: int | None = None,
    watch: bool = False,
    interval_hours: float = DEFAULT_INTERVAL_HOURS,
    priority: Priority = Priority.INTERACTIVE,
    document: str | None = None,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    child_filter: ChildFilter | None = None,
) -> SubmittedJob:
    """Register the site of an address and queue a scan of it, or join the active one.

    With `watch`, the site is scanned again one interval from now at the latest, its own or
    `interval_hours`. Otherwise the time of its next scan stays until the scan is published.
    """
    submission = build_submission(
        address,
        created_by=created_by,
        max_pages=max_pages,
        watch=watch,
        interval_hours=interval_hours,
        priority=priority,
        document=document,
        max_attempts=max_attempts,
        child_filter=child_filter,
    )
    row = (await session.execute(submission.statement, submission.values)).one()
    return submission.queued(row) or await join_active_job(session, submission, row.domain_id)


def build_submission(
    address: WebAddress,
    *,
    created_by: UUID,
    max_pages: int | None = None,
    watch: bool = False,
    interval_hours: float = DEFAULT_INTERVAL_HOURS,
    priority: Priority = Priority.INTERACTIVE,
    document: str | None = None,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    child_filter: ChildFilter | None = None,
) -> SiteSubmission:
    """The statement that `submit_site` executes, for callers that run it in autocommit mode."""
    new_job = NewJob(
        domain=address.domain,
        base_url=scan_address(address),
        created_by=created_by,
        max_pages=max_pages,
        document=document,
        priority=priority,
        max_attempts=max_attempts,
        child_filter=child_filter,
    )
    # The address of a document does not determine where scans of the site start.
    scheme_given = address.scheme_given and document is None
    statement = REGISTER_AND_INSERT[watch, scheme_given]
    domain_values = registration_values(
        address, created_by=created_by, default_interval_hours=interval_hours
    )
    return SiteSubmission(new_job, statement, domain_values | _job_values(new_job))


def _job_values(new_job: NewJob) -> dict[str, Any]:
    """The job parameters of the submission statement."""
    return {f"job_{name}": value for name, value in new_job.columns().items()}


async def join_active_job(
    session: AsyncSession, submission: SiteSubmission, domain_id: UUID
) -> SubmittedJob:
    """Join the active job that prevented the insert, or insert a new job if it has ended."""
    return await _join_or_insert(session, replace(submission.new_job, domain_id=domain_id))


async def watch_site(
    session: AsyncSession,
    address: WebAddress,
    *,
    created_by: UUID,
    scan_interval_hours: float | None = None,
    default_interval_hours: float = DEFAULT_INTERVAL_HOURS,
    max_pages: int | None = None,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    tags: Sequence[str] = (),
) -> tuple[Domain, SubmittedJob]:
    """Watch a site from now on and queue a first scan. Return the domain and the job."""
    domain = await register_domain(
        session,
        address,
        created_by=created_by,
        watch=True,
        max_pages=max_pages,
        scan_interval_hours=scan_interval_hours,
        default_interval_hours=default_interval_hours,
        tags=tags,
    )
    new = NewJob(
        domain=domain.domain,
        base_url=scan_address(address),
        created_by=created_by,
        domain_id=domain.id,
        max_pages=domain.max_pages,
        max_attempts=max_attempts,
    )
    return domain, await create(session, new)


def scan_address(address: WebAddress) -> str:
    """The address passed to the scan: without a scheme if none was given."""
    return address.url if address.scheme_given else address.url.split("://", 1)[1]


async def create(session: AsyncSession, new: NewJob) -> SubmittedJob:
    """Insert a pending job, or join the active one of the same site."""
    for inserted in await _insert(session, [new]):
        return SubmittedJob.from_row(inserted, deduplicated=False)
    return await _join_or_insert(session, new)


async def _join_or_insert(session: AsyncSession, new: NewJob) -> SubmittedJob:
    """Join the active job of the site, or insert a new job if it has ended."""
    for _ in range(JOIN_TRIES):
        job = await join(session, new)
        if job is not None:
            return _joined(job)
        for inserted in await _insert(session, [new]):
            return SubmittedJob.from_row(inserted, deduplicated=False)
    raise ConflictError("The active job of this site ended while it was being joined. Try again.")


def _joined(job: Job) -> SubmittedJob:
    """The result of a submission that joined an active job."""
    return replace(
        SubmittedJob.from_row(job, deduplicated=True),
        document=(job.job_metadata or {}).get("document"),
        is_scheduled=job.created_by == SYSTEM_USER_ID,
    )


async def create_many(session: AsyncSession, jobs: Sequence[NewJob]) -> dict[str, SubmittedJob]:
    """Insert many jobs at once and join the active ones. Return the submitted jobs by site."""
    inserted = await _insert(session, jobs)
    submitted = {job.dedup_key: SubmittedJob.from_row(job, deduplicated=False) for job in inserted}
    others = [new for new in jobs if new.domain not in submitted]
    active = await find_sufficient_jobs(session, others) if others else {}
    submitted |= {site: _joined(job) for site, job in active.items()}
    for new in others:
        if new.domain not in submitted:
            submitted[new.domain] = await _join_or_insert(session, new)
    return {site: job for site, job in submitted.items() if site is not None}


async def _insert(session: AsyncSession, jobs: Sequence[NewJob]) -> Sequence[Job]:
    """Insert the jobs of sites without an active job; return the inserted ones."""
    rows = [new.columns() for new in jobs]
    return (await session.scalars(INSERT_UNLESS_ACTIVE, rows)).all()
