"""The queue: jobs, their attempts and batches, users who submit them, workers that run them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import (
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    SmallInteger,
    func,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from siteatlas.storage.models.base import Base, CreatedAt, TextEnum, one_of

LOCAL_USER_ID = UUID("5905e9fe-6c61-4694-b09a-6602017b000a")
SYSTEM_USER_ID = UUID("5905e9fe-6c61-4694-b09a-6602017b0000")
SITEMAP_JOB = "sitemap"
ACTIVE_CONDITION = "status IN ('pending', 'processing')"
WAITING = "status = 'pending' AND job_type = 'sitemap'"


class JobStatus(StrEnum):
    """The states of a job; the last three are final."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Job(Base):
    """One piece of work, from its submission to its end.

    `fence` grows with every claim and never goes back; together with `id` it is the right to
    write. `attempt` may be refunded. `alone`: no other job runs in its process. `site` is the
    registrable domain whose jobs are limited in each process, `address` the one at which the site
    answered last; null for no limit.
    `lease_until` has no index, so that heartbeats stay HOT.
    Other programs may keep jobs in the same table: only rows of the type `SITEMAP_JOB` are ever
    claimed, counted or pruned here. `dedup_key` is unique over the active jobs of all types.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        one_of("status", JobStatus),
        Index(
            "ix_jobs_fair",
            "priority",
            "created_by",
            "run_at",
            "id",
            postgresql_include=["site", "address", "rescues"],
            postgresql_where=text(WAITING),
        ),
        Index("ix_jobs_alone", "id", postgresql_where=text(f"{WAITING} AND rescues >= 2")),
        Index("ix_jobs_live", "id", postgresql_where=text("status = 'processing'")),
        Index(
            "uq_jobs_dedup_key", "dedup_key", unique=True, postgresql_where=text(ACTIVE_CONDITION)
        ),
        Index("ix_jobs_status_id", "status", text("id DESC")),
        Index(
            "ix_jobs_ended",
            "job_type",
            "status",
            "finished_at",
            postgresql_where=text("finished_at IS NOT NULL"),
        ),
        Index("ix_jobs_domain_id_id", "domain_id", text("id DESC")),
        {
            "postgresql_with": {
                "fillfactor": 75,
                "autovacuum_vacuum_scale_factor": 0.01,
                "autovacuum_vacuum_threshold": 100,
                "autovacuum_vacuum_cost_delay": 0,
                "autovacuum_analyze_scale_factor": 0.01,
                "autovacuum_analyze_threshold": 500,
            }
        },
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    job_id: Mapped[UUID] = mapped_column(unique=True, server_default=func.gen_random_uuid())
    job_type: Mapped[str] = mapped_column(server_default=text("'sitemap'"))
    status: Mapped[JobStatus] = mapped_column(TextEnum(JobStatus), server_default=text("'pending'"))
    priority: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    run_at: Mapped[datetime] = mapped_column(server_default=func.now())
    domain_id: Mapped[UUID | None] = mapped_column(ForeignKey("domains.id", ondelete="SET NULL"))
    created_by: Mapped[UUID] = mapped_column(ForeignKey("users.id"))
    dedup_key: Mapped[str | None]
    site: Mapped[str | None]
    address: Mapped[str | None]
    progress: Mapped[float] = mapped_column(Double, server_default=text("0"))
    result_data: Mapped[dict[str, Any] | None]
    job_metadata: Mapped[dict[str, Any] | None]
    error: Mapped[str | None]
    error_code: Mapped[str | None]
    fence: Mapped[int] = mapped_column(server_default=text("0"))
    attempt: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    max_attempts: Mapped[int] = mapped_column(Integer, server_default=text("5"))
    rescues: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    alone: Mapped[bool] = mapped_column(server_default=text("false"))
    snoozes: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    worker_id: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    heartbeat_at: Mapped[datetime | None]
    cancel_requested_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[CreatedAt]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]

    def to_dict(self) -> dict[str, Any]:
        """Every column by its name, in types that JSON has."""
        return {
            column.key: _json_value(getattr(self, column.key)) for column in self.__table__.columns
        }


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, StrEnum):
        return value.value
    return str(value) if isinstance(value, UUID) else value


class AttemptOutcome(StrEnum):
    """How an attempt ended: with its job at an end, or put back into the queue."""

    COMPLETED = "completed"
    FAILED = "failed"
    RETRIED = "retried"
    RELEASED = "released"
    SNOOZED = "snoozed"
    RESCUED = "rescued"
    CANCELLED = "cancelled"


class JobRequest(Base):
    """Another user than `created_by` who wants a job; a cancellation ends it with the last one."""

    __tablename__ = "job_requests"

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id"), primary_key=True)
    created_at: Mapped[CreatedAt]


class JobAttempt(Base):
    """How one attempt at a job ended."""

    __tablename__ = "job_attempts"

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    fence: Mapped[int] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer)
    worker_id: Mapped[str | None]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[CreatedAt]
    outcome: Mapped[AttemptOutcome] = mapped_column(TextEnum(AttemptOutcome))
    error_code: Mapped[str | None]
    error: Mapped[str | None]


class Batch(Base):
    """A list of sites; the counters are written once, when the last item has ended."""

    __tablename__ = "batches"
    __table_args__ = (
        Index("ix_batches_open", "created_at", postgresql_where=text("finished_at IS NULL")),
        Index(
            "ix_batches_finished_at",
            "finished_at",
            postgresql_where=text("finished_at IS NOT NULL"),
        ),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=func.gen_random_uuid())
    total: Mapped[int] = mapped_column(Integer)
    completed: Mapped[int | None] = mapped_column(Integer)
    failed: Mapped[int | None] = mapped_column(Integer)
    max_pages: Mapped[int | None]
    created_by: Mapped[UUID] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]


class BatchItem(Base):
    """One site of a batch and its job, which other submitters may share.

    `status` and the times are copied from the job when the batch ends or the job is pruned.
    """

    __tablename__ = "batch_items"
    __table_args__ = (Index("ix_batch_items_job_id", "job_id"),)

    batch_id: Mapped[UUID] = mapped_column(
        ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(Integer, primary_key=True)
    domain: Mapped[str]
    job_id: Mapped[int | None] = mapped_column(ForeignKey("jobs.id", ondelete="SET NULL"))
    job_uuid: Mapped[UUID | None]
    status: Mapped[JobStatus | None] = mapped_column(TextEnum(JobStatus))
    error_code: Mapped[str | None]
    error: Mapped[str | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class User(Base):
    """A person or program. Two exist from the start: the local user and the system itself."""

    __tablename__ = "users"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[CreatedAt]


class Worker(Base):
    """One process. No other table points here, so that a dead worker can always be forgotten.

    One that shut down gracefully has no slots. `boot_id` differs after each start of the machine.
    """

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(primary_key=True)
    hostname: Mapped[str]
    boot_id: Mapped[str | None]
    pid: Mapped[int] = mapped_column(Integer)
    version: Mapped[str]
    slots: Mapped[int] = mapped_column(Integer)
    running: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    started_at: Mapped[CreatedAt]
    last_seen_at: Mapped[datetime] = mapped_column(server_default=func.now())
    last_tick_at: Mapped[datetime | None]
    next_tick_at: Mapped[datetime | None]


class AddressSlot(Base):
    """The lease of a worker on an IP address that many waiting sites share."""

    __tablename__ = "address_slots"

    address: Mapped[str] = mapped_column(primary_key=True)
    worker: Mapped[str]
    until: Mapped[datetime]
