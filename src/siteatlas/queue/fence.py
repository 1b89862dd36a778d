"""The fence and the lease of a claimed job: statements that take effect only for its holder.

The fence grows with every claim. Every transaction that writes for a job ends with one of these
statements (decision 0002). `heartbeat` renews the leases of all jobs of a process.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any, Self, TypeVar
from uuid import UUID

from sqlalchemy import (
    BindParameter,
    Boolean,
    Double,
    Integer,
    Interval,
    Row,
    Text,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal,
    literal_column,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import InputError, JobCancelled, LeaseLost
from siteatlas.net.egress import registrable_domain
from siteatlas.scanner.options import ChildFilter
from siteatlas.settings import DEFAULT_MAX_ATTEMPTS
from siteatlas.storage.models import SITEMAP_JOB, Job, JobStatus, ScanScope, Worker
from siteatlas.storage.schema import ADDRESS_SLOTS, JOBS

ChoiceT = TypeVar("ChoiceT", bound=StrEnum)

STATUS_ALIASES = {"complete": JobStatus.COMPLETED, "error": JobStatus.FAILED}
FINAL_STATUSES = (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)
UNPUBLISHED = (JobStatus.FAILED, JobStatus.CANCELLED)
ACTIVE_STATUSES = (JobStatus.PENDING, JobStatus.PROCESSING)


def parse_status(word: str) -> JobStatus:
    """Accept the stored words and the older ones, `complete` and `error`."""
    return parse_status_or_type(word, JobStatus, "status", STATUS_ALIASES)


def parse_status_or_type(
    text: str, known: type[ChoiceT], what: str, aliases: Mapping[str, str] | None = None
) -> ChoiceT:
    """Parse the status of a job or document, or a type, in any case or as one of the `aliases`.

    InputError says `what` is expected and lists the accepted words.
    """
    older = aliases or {}
    word = text.strip().lower()
    try:
        return known(older.get(word, word))
    except ValueError as error:
        words = ", ".join([*known, *older])
        raise InputError(f"There is no {what} {text!r}. Known: {words}.") from error


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


# A process reports at least this often, however long its leases are.
REPORT_SECONDS = 15.0
# A process that has not reported for this long counts as dead.
ALIVE_SECONDS = 4 * REPORT_SECONDS


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The row of a process in the registry of workers."""

    id: str
    hostname: str
    pid: int
    version: str
    slots: int
    running: int
    last_tick_at: datetime | None = None
    next_tick_at: datetime | None = None
    boot_id: str | None = None


async def report_worker(session: AsyncSession, report: WorkerReport) -> None:
    """Insert or refresh the row of a process."""
    values = {
        "hostname": report.hostname,
        "boot_id": report.boot_id,
        "pid": report.pid,
        "version": report.version,
        "slots": report.slots,
        "running": report.running,
        "last_tick_at": report.last_tick_at,
        "next_tick_at": report.next_tick_at,
    }
    await session.execute(
        insert(Worker)
        .values(id=report.id, **values)
        .on_conflict_do_update(
            index_elements=[Worker.id], set_=values | {"last_seen_at": func.now()}
        )
    )


async def sign_off_worker(session: AsyncSession, report: WorkerReport) -> None:
    """Record that a process shuts down cleanly.

    One that ticked keeps its row, without slots: when the last tick was stays known. Retention
    removes it with the rows of processes that were killed. The addresses that it held are free.
    """
    await session.execute(delete(ADDRESS_SLOTS).where(ADDRESS_SLOTS.c.worker == report.id))
    if report.last_tick_at is None:
        await session.execute(delete(Worker).where(Worker.id == report.id))
    else:
        await report_worker(session, replace(report, slots=0, running=0, next_tick_at=None))


# The job still has the fence of the claim. The names of parameters must differ from those of the
# columns that an UPDATE sets.
is_claim_holder = and_(
    JOBS.c.id == bindparam("of_job"),
    JOBS.c.fence == bindparam("of_fence"),
    JOBS.c.status == JobStatus.PROCESSING,
)
renew_lease = (
    update(JOBS)
    .where(is_claim_holder)
    .values(
        lease_until=func.now() + bindparam("lease", type_=Interval()),
        heartbeat_at=func.now(),
        progress=func.greatest(JOBS.c.progress, bindparam("new_progress", type_=Double())),
        # Merged: the limit in it may have been raised by a submission that joined the job.
        result_data=func.coalesce(
            func.coalesce(JOBS.c.result_data, func.jsonb_build_object(), type_=JSONB()).op("||")(
                bindparam("result", type_=JSONB(none_as_null=True))
            ),
            JOBS.c.result_data,
        ),
        rescues=case((bindparam("finished", type_=Boolean()), 0), else_=JOBS.c.rescues),
        # Other jobs may run beside it from then on.
        alone=and_(JOBS.c.alone, ~bindparam("finished", type_=Boolean())),
        snoozes=case((bindparam("read", type_=Boolean()), 0), else_=JOBS.c.snoozes),
        updated_at=func.now(),
    )
    .returning(JOBS.c.cancel_requested_at)
)
# What a claim returns of a job: no more, and as plain rows, which are several times as fast to load
# as objects.
claim_columns = (
    JOBS.c.id,
    JOBS.c.job_id,
    JOBS.c.fence,
    JOBS.c.attempt,
    JOBS.c.max_attempts,
    JOBS.c.result_data,
    JOBS.c.job_metadata,
    JOBS.c.domain_id,
    JOBS.c.created_by,
    JOBS.c.created_at,
    JOBS.c.run_at,
    JOBS.c.priority,
    JOBS.c.site,
    JOBS.c.address,
)


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on a job, valid as long as the job has this fence.

    `site` is the registrable domain whose jobs are limited, if they are; `address` the one at which
    the site answered last. `alone`: the job may have
    killed its workers, so no other job may run in its process.
    """

    id: int
    job_id: UUID
    fence: int
    attempt: int
    max_attempts: int
    domain: str | None
    domain_id: UUID | None
    base_url: str | None
    document: str | None
    max_pages: int | None
    created_by: UUID
    created_at: datetime
    priority: int = 0
    site: str | None = None
    address: str | None = None
    alone: bool = False
    child_filter: ChildFilter | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether less than the whole site is requested, which a later submission may change."""
        return self.document is not None or self.child_filter is not None

    @property
    def scope(self) -> ScanScope:
        """How much of the site is requested."""
        if self.document is not None:
            return ScanScope.DOCUMENT
        return ScanScope.FULL if self.child_filter is None else ScanScope.FILTERED

    @property
    def fenced(self) -> dict[str, Any]:
        """The parameters of `is_claim_holder`."""
        return {"of_job": self.id, "of_fence": self.fence}

    @classmethod
    def from_job(cls, job: Job | Row[Any]) -> Self:
        """The claim on a job that was just claimed, of which `claim_columns` are known."""
        data, metadata = job.result_data or {}, job.job_metadata or {}
        return cls(
            id=job.id,
            job_id=job.job_id,
            fence=job.fence,
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            domain=_job_request_text(data.get("domain")),
            domain_id=job.domain_id,
            base_url=_job_request_text(metadata.get("base_url"))
            or _job_request_text(data.get("domain")),
            document=_job_request_text(metadata.get("document")),
            max_pages=data.get("max_pages") if isinstance(data.get("max_pages"), int) else None,
            created_by=job.created_by,
            created_at=job.created_at,
            priority=job.priority,
            site=job.site,
            address=job.address,
            child_filter=ChildFilter.stored(metadata.get("child_filter")),
        )


def status_value(status: JobStatus) -> BindParameter[JobStatus]:
    """A status as a literal with the type of the column, for expressions without a column."""
    return literal(status, JOBS.c.status.type)


def _job_request_text(value: Any) -> str | None:
    """A text in the stored request of a claimed job; None if it is blank or of another type."""
    return value if isinstance(value, str) and value.strip() else None


HEARTBEATS_PER_LEASE = 4


async def report_progress(
    session: AsyncSession,
    claim: Claim,
    *,
    lease_seconds: float,
    progress: float,
    result_data: dict[str, Any] | None = None,
    documents_finished: bool = False,
    documents_read: bool = False,
) -> None:
    """The fence: the last statement of every transaction that writes for a job.

    It renews the lease and moves progress forward, never back. No row means that another worker
    has claimed the job: LeaseLost rolls the whole transaction back. A finished document resets the
    count of rescues, one that was read also that of snoozes.
    """
    values = fence_values(claim, lease_seconds, progress) | {
        "result": result_data,
        "finished": documents_finished,
        "read": documents_read,
    }
    require_claim((await session.execute(renew_lease, values)).first())


def fence_values(claim: Claim, lease_seconds: float, progress: float) -> dict[str, Any]:
    """The values of `renew_lease` for a transaction that finished no document."""
    # 1.0 is reserved for completed jobs.
    return {
        **claim.fenced,
        "lease": timedelta(seconds=lease_seconds),
        "new_progress": min(progress, 0.99),
        "result": None,
        "finished": False,
        "read": False,
    }


def require_claim(row: Row[Any] | None) -> Row[Any]:
    """The row; LeaseLost if the claim is no longer held, JobCancelled if that was requested."""
    if row is None:
        raise LeaseLost
    if row.cancel_requested_at is not None:
        raise JobCancelled
    return row


_assign_domain = (
    update(JOBS)
    .where(is_claim_holder)
    .values(domain_id=bindparam("of_domain", type_=JOBS.c.domain_id.type), updated_at=func.now())
    .returning(JOBS.c.id)
)


async def keep_addresses(
    session: AsyncSession, worker_id: str, addresses: Collection[str], lease_seconds: float
) -> None:
    """Renew the leases of a worker on the addresses at which its jobs run."""
    mine = (ADDRESS_SLOTS.c.worker == worker_id, ADDRESS_SLOTS.c.address.in_(addresses))
    until = func.now() + timedelta(seconds=lease_seconds)
    await session.execute(update(ADDRESS_SLOTS).where(*mine).values(until=until))


async def assign_domain(session: AsyncSession, claim: Claim, domain_id: UUID) -> None:
    """Set the domain of a job that was created without one. LeaseLost if not the claim holder."""
    values = {**claim.fenced, "of_domain": domain_id}
    if (await session.execute(_assign_domain, values)).first() is None:
        raise LeaseLost


async def heartbeat(
    session: AsyncSession, claims: Iterable[Claim], lease_seconds: float
) -> tuple[set[int], set[int]]:
    """Renew the leases of all jobs of a process in one statement.

    Returns the ids of the jobs still held, and of those whose cancellation was requested.
    """
    held = sorted({(claim.id, claim.fence) for claim in claims})
    if not held:
        return set(), set()
    mine = (
        select(Job.id)
        .where(tuple_(Job.id, Job.fence).in_(held), Job.status == JobStatus.PROCESSING)
        .order_by(Job.id)
        .with_for_update(key_share=True)
        .cte("mine")
    )
    statement = (
        update(Job)
        .where(Job.id == mine.c.id)
        .values(lease_until=func.now() + timedelta(seconds=lease_seconds), heartbeat_at=func.now())
        .returning(Job.id, Job.cancel_requested_at)
        .execution_options(synchronize_session=False)
    )
    rows = (await session.execute(statement)).all()
    return {row.id for row in rows}, {row.id for row in rows if row.cancel_requested_at}


class Priority(IntEnum):
    """Lower is sooner."""

    INTERACTIVE = 0
    BATCH = 5
    SCHEDULED = 9


_PORT = re.compile(r":\d+$")


@dataclass(frozen=True, slots=True)
class NewJob:
    """The values of a job at its creation."""

    domain: str
    base_url: str
    created_by: UUID
    domain_id: UUID | None = None
    max_pages: int | None = None
    document: str | None = None
    priority: Priority = Priority.INTERACTIVE
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    job_id: UUID | None = None
    child_filter: ChildFilter | None = None

    @property
    def stored_filter(self) -> dict[str, Any] | None:
        """The filter as it is stored with the job; None if there is none."""
        return None if self.child_filter is None else self.child_filter.as_dict()

    def columns(self) -> dict[str, Any]:
        """The values of the row; `result_data` holds the site and its limit from the start."""
        values: dict[str, Any] = {
            "domain_id": self.domain_id,
            "created_by": self.created_by,
            "dedup_key": self.domain,
            "site": registrable_domain(_PORT.sub("", self.domain)),
            "priority": int(self.priority),
            "max_attempts": self.max_attempts,
            "result_data": {"domain": self.domain, "max_pages": self.max_pages},
            "job_metadata": {"base_url": self.base_url, "document": self.document},
        }
        if (stored_filter := self.stored_filter) is not None:
            values["job_metadata"]["child_filter"] = stored_filter
        return values | ({"job_id": self.job_id} if self.job_id else {})


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """The result of a submission; `deduplicated` if the site already had an active job.

    `document` is the only document that such a job reads; None for the whole site. `is_scheduled`
    if such a job was queued by the schedule, not by a user.
    """

    id: int
    job_id: UUID
    status: JobStatus
    created_at: datetime
    deduplicated: bool
    domain: str
    max_pages: int | None
    document: str | None = None
    is_scheduled: bool = False

    @classmethod
    def from_row(cls, job: Job | Row[Any], *, deduplicated: bool) -> Self:
        """The result for a job, or for a row with the columns used here."""
        data = job.result_data or {}
        return cls(
            id=job.id,
            job_id=job.job_id,
            status=job.status,
            created_at=job.created_at,
            deduplicated=deduplicated,
            domain=str(data.get("domain", "")),
            max_pages=data.get("max_pages"),
        )
