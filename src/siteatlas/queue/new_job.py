"""The values of a new job, and what its submitter gets back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from siteatlas.settings import DEFAULT_MAX_ATTEMPTS
from siteatlas.storage.models import Job, JobStatus


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
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
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
class SubmittedJob:
    """The answer to a submission; `deduplicated` when the site already had an active job.

    `document` is the only one that such a job reads; None for the whole site.
    """

    id: int
    job_id: UUID
    status: JobStatus
    created_at: datetime
    deduplicated: bool
    domain: str
    max_pages: int | None
    document: str | None = None


def submitted_of(job: Job | Row[Any], *, deduplicated: bool) -> SubmittedJob:
    """The answer that describes a job, or a row with the columns named here."""
    data = job.result_data or {}
    return SubmittedJob(
        id=job.id,
        job_id=job.job_id,
        status=job.status,
        created_at=job.created_at,
        deduplicated=deduplicated,
        domain=str(data.get("domain", "")),
        max_pages=data.get("max_pages"),
    )
