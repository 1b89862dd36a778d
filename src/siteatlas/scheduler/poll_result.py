"""What one transaction of a poll took, and how it is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from siteatlas.logs import get_logger
from siteatlas.meters import meters
from siteatlas.queue.claims import Claim
from siteatlas.queue.statuses import FINAL_STATUSES
from siteatlas.storage.models import Job

log = get_logger("scheduler")


@dataclass(frozen=True, slots=True)
class PollResult:
    """New jobs, or those taken back from silent workers or from ourselves.

    `returned` is as they were then: others may have claimed some of them since.
    """

    claims: list[Claim] = field(default_factory=list)
    rescues: int = 0
    returned: list[dict[str, Any]] = field(default_factory=list)

    def log_and_count(self) -> None:
        """Log and count it; the transaction is committed."""
        meters.claims += len(self.claims)
        meters.rescues += self.rescues
        for job in self.returned:
            log.warning("job_rescued", **job)
            if job["status"] in FINAL_STATUSES:
                meters.jobs_ended[job["status"]] += 1


def log_fields(job: Job) -> dict[str, Any]:
    """A job that was taken back, for the log."""
    return {
        "job_id": str(job.job_id),
        "domain": (job.result_data or {}).get("domain"),
        "status": str(job.status),
        "rescues": job.rescues,
        "error_code": job.error_code,
    }
