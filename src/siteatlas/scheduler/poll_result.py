"""What one transaction of a poll took, and how it is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from siteatlas.logs import get_logger
from siteatlas.meters import meters
from siteatlas.queue.claims import Claim
from siteatlas.queue.statuses import FINAL
from siteatlas.storage.models import Job

log = get_logger("scheduler")


@dataclass(frozen=True, slots=True)
class Taken:
    """New jobs, or those taken back from silent workers or from ourselves.

    `returned` is as they were then: others may have claimed some of them since.
    """

    claims: list[Claim] = field(default_factory=list)
    rescues: int = 0
    returned: list[dict[str, Any]] = field(default_factory=list)

    def tell(self) -> None:
        """Log and count it; the transaction is committed."""
        meters.claims += len(self.claims)
        meters.rescues += self.rescues
        for job in self.returned:
            log.warning("job_rescued", **job)
            if job["status"] in FINAL:
                meters.jobs_ended[job["status"]] += 1


def described(job: Job) -> dict[str, Any]:
    """A job that was taken back, for the log."""
    return {
        "job_id": str(job.job_id),
        "domain": (job.result_data or {}).get("domain"),
        "status": str(job.status),
        "rescues": job.rescues,
        "error_code": job.error_code,
    }
