"""Many sites submitted together."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, Index, Integer, func, text
from sqlalchemy.orm import Mapped, mapped_column

from siteatlas.storage.models.base import Base, CreatedAt, TextEnum
from siteatlas.storage.models.job import JobStatus


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
