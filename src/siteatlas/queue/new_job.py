"""The values of a new job, and the result of its submission."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any, Self
from uuid import UUID

from sqlalchemy import Row

from siteatlas.scanner.child_filter import ChildFilter
from siteatlas.settings import DEFAULT_MAX_ATTEMPTS
from siteatlas.storage.models import Job, JobStatus


class Priority(IntEnum):
    """Lower is sooner."""

    INTERACTIVE = 0
    BATCH = 5
    SCHEDULED = 9


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
