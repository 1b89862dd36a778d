"""The claim on a job and its fence: statements that take effect only for the claim holder.

Every transaction that writes for a job ends with one of them (decision 0006).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from sqlalchemy import (
    BindParameter,
    Boolean,
    Double,
    Interval,
    Row,
    and_,
    bindparam,
    case,
    func,
    literal,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB

from siteatlas.scanner.child_filter import ChildFilter
from siteatlas.storage.models import Job, JobStatus, ScanScope
from siteatlas.storage.tables import JOBS

# The job still has the fence of the claim. The names of parameters must differ from those of the
# columns that an UPDATE sets.
IS_CLAIM_HOLDER = and_(
    JOBS.c.id == bindparam("of_job"),
    JOBS.c.fence == bindparam("of_fence"),
    JOBS.c.status == JobStatus.PROCESSING,
)
RENEW_LEASE = (
    update(JOBS)
    .where(IS_CLAIM_HOLDER)
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
        # Other jobs may run beside a suspect from then on.
        alone=and_(JOBS.c.alone, ~bindparam("finished", type_=Boolean())),
        snoozes=case((bindparam("read", type_=Boolean()), 0), else_=JOBS.c.snoozes),
        updated_at=func.now(),
    )
    .returning(JOBS.c.cancel_requested_at)
)
ASSIGN_DOMAIN = (
    update(JOBS)
    .where(IS_CLAIM_HOLDER)
    .values(domain_id=bindparam("of_domain", type_=JOBS.c.domain_id.type), updated_at=func.now())
    .returning(JOBS.c.id)
)
# What a claim returns of a job: no more, and as plain rows, which are several times as fast to load
# as objects.
CLAIM_COLUMNS = (
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
)


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on a job, valid as long as the job has this fence.

    `is_suspect`: the job may have killed its workers, so it must run alone in its process.
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
    is_suspect: bool = False
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
        """The parameters of `IS_CLAIM_HOLDER`."""
        return {"of_job": self.id, "of_fence": self.fence}

    @classmethod
    def from_job(cls, job: Job | Row[Any]) -> Self:
        """The claim on a job that was just claimed, of which `CLAIM_COLUMNS` are known."""
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
            child_filter=ChildFilter.stored(metadata.get("child_filter")),
        )


def status_value(status: JobStatus) -> BindParameter[JobStatus]:
    """A status as a literal with the type of the column, for expressions without a column."""
    return literal(status, JOBS.c.status.type)


def _job_request_text(value: Any) -> str | None:
    """A text in the stored request of a claimed job; None if it is blank or of another type."""
    return value if isinstance(value, str) and value.strip() else None
