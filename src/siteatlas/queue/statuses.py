"""The words for a job's status that people use, and the one that is stored."""

from __future__ import annotations

from siteatlas.errors import InputError
from siteatlas.storage.models import JobStatus

STATUS_ALIASES = {"complete": JobStatus.COMPLETED, "error": JobStatus.FAILED}
FINAL_STATUSES = (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)
UNPUBLISHED = (JobStatus.FAILED, JobStatus.CANCELLED)
ACTIVE_STATUSES = (JobStatus.PENDING, JobStatus.PROCESSING)


def parse_status(word: str) -> JobStatus:
    """Accept the stored words and the older ones, `complete` and `error`."""
    lowered = word.strip().lower()
    if lowered in STATUS_ALIASES:
        return STATUS_ALIASES[lowered]
    try:
        return JobStatus(lowered)
    except ValueError as error:
        known = ", ".join([*JobStatus, *STATUS_ALIASES])
        raise InputError(f"There is no status {word!r}. Known: {known}.") from error
