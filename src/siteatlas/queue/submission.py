"""Creating jobs: one active job per site, however often it is submitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Row, Select, bindparam, func, select, text, true, update
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import ConflictError
from siteatlas.net.address import WebAddress
from siteatlas.queue.statuses import ACTIVE
from siteatlas.storage.domains import plan_next_scan, register_domain, registered, registration
from siteatlas.storage.models import Domain, Job, JobStatus
from siteatlas.storage.models.job import ACTIVE as ACTIVE_PREDICATE

JOIN_TRIES = 5
DEFAULT_INTERVAL_HOURS = 24.0
OWN_COLUMNS = (
    "created_by",
    "dedup_key",
    "priority",
    "max_attempts",
    "result_data",
    "job_metadata",
)


def _unless_active(row: Insert) -> Insert:
    """Insert nothing when the site has an active job."""
    return row.on_conflict_do_nothing(
        index_elements=[Job.dedup_key], index_where=text(ACTIVE_PREDICATE)
    )


INSERT_UNLESS_ACTIVE = _unless_active(insert(Job)).returning(Job)
FIND_ACTIVE = (
    select(Job)
    .where(Job.dedup_key == bindparam("site"), Job.status.in_(ACTIVE))
    .execution_options(populate_existing=True)
)


class Priority(IntEnum):
    """Lower is sooner."""

    INTERACTIVE = 0
    BATCH = 5
    SCHEDULED = 9


@dataclass(frozen=True, slots=True)
class NewJob:
    """What a job is told when it is created."""

    domain: str
    base_url: str
    created_by: UUID
    domain_id: UUID | None = None
    max_pages: int | None = None
    document: str | None = None
    priority: Priority = Priority.INTERACTIVE
    max_attempts: int = 5
    job_id: UUID | None = None

    def columns(self) -> dict[str, Any]:
        """The values of the row; the site and its limit stand in `result_data` from the start."""
        values: dict[str, Any] = {
            "domain_id": self.domain_id,
            "created_by": self.created_by,
            "dedup_key": self.domain,
            "priority": int(self.priority),
            "max_attempts": self.max_attempts,
            "result_data": {"domain": self.domain, "max_pages": self.max_pages},
            "job_metadata": {"base_url": self.base_url, "document": self.document},
        }
        return values | ({"job_id": self.job_id} if self.job_id else {})


@dataclass(frozen=True, slots=True)
class Submitted:
    """The answer to a submission; `deduplicated` when the site already had an active job."""

    id: int
    job_id: UUID
    status: str
    created_at: datetime
    deduplicated: bool
    domain: str
    max_pages: int | None


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
    max_attempts: int = 5,
) -> Submitted:
    """Register the site of an address and queue a scan of it, or join the active one.

    A watched site is scanned again one interval from now, its own or `interval_hours`.
    """
    new = NewJob(
        domain=address.domain,
        base_url=as_typed(address),
        created_by=created_by,
        max_pages=max_pages,
        document=document,
        priority=priority,
        max_attempts=max_attempts,
    )
    done = await _register_and_insert(session, address, new, watch=watch)
    if watch:
        await plan_next_scan(session, done.domain_id, interval_hours)
    if done.id is None:
        return await _join_or_insert(session, replace(new, domain_id=done.domain_id))
    return Submitted(
        id=done.id,
        job_id=done.job_id,
        status=done.status,
        created_at=done.created_at,
        deduplicated=False,
        domain=new.domain,
        max_pages=max_pages,
    )


async def _register_and_insert(
    session: AsyncSession, address: WebAddress, new: NewJob, *, watch: bool
) -> Row[Any]:
    """The id of the site and its new job, in one statement; no job when one is active."""
    columns = new.columns()
    values = registered(address, created_by=new.created_by)
    values |= {f"job_{name}": columns[name] for name in OWN_COLUMNS}
    statement = _registration_and_job(watch=watch, scheme_given=address.scheme_given)
    done: Row[Any] = (await session.execute(statement, values)).one()
    return done


@cache
def _registration_and_job(*, watch: bool, scheme_given: bool) -> Select[Any]:
    known = registration(watch=watch, scheme_given=scheme_given)
    site = known.returning(Domain.id).cte("site")
    row: dict[str, ColumnElement[Any]] = {
        name: bindparam(f"job_{name}", type_=Job.__table__.c[name].type) for name in OWN_COLUMNS
    }
    row["domain_id"] = site.c.id
    new = _unless_active(insert(Job).from_select(list(row), select(*row.values())))
    job = new.returning(Job.id, Job.job_id, Job.status, Job.created_at).cte("job")
    return select(site.c.id.label("domain_id"), job).select_from(site.outerjoin(job, true()))


async def watch_site(
    session: AsyncSession,
    address: WebAddress,
    *,
    created_by: UUID,
    scan_interval_hours: float | None = None,
    default_interval_hours: float = DEFAULT_INTERVAL_HOURS,
    max_pages: int | None = None,
    max_attempts: int = 5,
) -> Domain:
    """Watch a site from now on, beginning with a scan of it."""
    domain = await register_domain(
        session,
        address,
        created_by=created_by,
        watch=True,
        max_pages=max_pages,
        scan_interval_hours=scan_interval_hours,
    )
    await submit_site(
        session,
        address,
        created_by=created_by,
        max_pages=domain.max_pages,
        watch=True,
        interval_hours=default_interval_hours,
        max_attempts=max_attempts,
    )
    return domain


def as_typed(address: WebAddress) -> str:
    """The address as a scan is told it: without a scheme when none was given."""
    return address.url if address.scheme_given else address.url.split("://", 1)[1]


async def create(session: AsyncSession, new: NewJob) -> Submitted:
    """Insert a pending job, or find the active one of the same site."""
    for inserted in await _insert(session, [new]):
        return submitted_of(inserted, deduplicated=False)
    return await _join_or_insert(session, new)


async def _join_or_insert(session: AsyncSession, new: NewJob) -> Submitted:
    """There was an active job of the site a moment ago: join it, or come after it."""
    for _ in range(JOIN_TRIES):
        job = await _join(session, new)
        if job is not None:
            return submitted_of(job, deduplicated=True)
        for inserted in await _insert(session, [new]):
            return submitted_of(inserted, deduplicated=False)
    raise ConflictError("The jobs of this site end faster than they can be joined. Try again.")


async def create_many(session: AsyncSession, jobs: Sequence[NewJob]) -> dict[str, Submitted]:
    """Insert many jobs at once and join the active ones; the answers by site."""
    inserted = await _insert(session, jobs)
    answers = {job.dedup_key: submitted_of(job, deduplicated=False) for job in inserted}
    for new in jobs:
        if new.domain not in answers:
            answers[new.domain] = await _join_or_insert(session, new)
    return {site: answer for site, answer in answers.items() if site is not None}


async def _insert(session: AsyncSession, jobs: Sequence[NewJob]) -> Sequence[Job]:
    rows = [new.columns() for new in jobs]
    return (await session.scalars(INSERT_UNLESS_ACTIVE, rows)).all()


async def _join(session: AsyncSession, new: NewJob) -> Job | None:
    """The active job of the site; while it waits, it takes over the wider wish of the two."""
    found = await session.scalars(FIND_ACTIVE, {"site": new.domain})
    job = found.one_or_none()
    if job is None or job.status != JobStatus.PENDING:
        return job
    widened = _widened(job, new)
    if not widened:
        return job
    update_pending = (
        update(Job)
        .where(Job.id == job.id, Job.status == JobStatus.PENDING)
        .values(updated_at=func.now(), **widened)
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    return (await session.execute(update_pending)).scalar_one_or_none() or job


def _widened(job: Job, new: NewJob) -> dict[str, Any]:
    """What a waiting job must change to satisfy the new submission too; no limit is widest."""
    changes: dict[str, Any] = {}
    data = dict(job.result_data or {})
    old_limit = data.get("max_pages")
    if old_limit is not None and (new.max_pages is None or new.max_pages > old_limit):
        changes["result_data"] = data | {"max_pages": new.max_pages}
    if new.priority < job.priority:
        changes["priority"] = int(new.priority)
    metadata = dict(job.job_metadata or {})
    if metadata.get("document") and new.document is None:
        changes["job_metadata"] = metadata | {"document": None, "base_url": new.base_url}
    return changes


def submitted_of(job: Job, *, deduplicated: bool) -> Submitted:
    """The answer that describes a job."""
    data = job.result_data or {}
    return Submitted(
        id=job.id,
        job_id=job.job_id,
        status=job.status,
        created_at=job.created_at,
        deduplicated=deduplicated,
        domain=str(data.get("domain", "")),
        max_pages=data.get("max_pages"),
    )
