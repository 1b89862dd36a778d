"""The columns of a job that is queued again by hand: as if it had just been submitted.

Its identity, its owner and what it was asked to do stay. `steering` and `job_service` use it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import case, func

from siteatlas.storage.models import SITEMAP_JOB, Job, JobStatus


def requeued_values() -> dict[str, Any]:
    """Pending with every attempt left, no progress, no error and no result."""
    return {
        "status": JobStatus.PENDING,
        "attempt": 0,
        "rescues": 0,
        "snoozes": 0,
        "progress": 0.0,
        "run_at": func.now(),
        "started_at": None,
        "finished_at": None,
        "worker_id": None,
        "cancel_requested_at": None,
        "error": None,
        "error_code": None,
        "result_data": _request(),
        "updated_at": func.now(),
    }


def _request() -> Any:
    """What the job was asked to do; only of sitemap jobs is it known where that stands."""
    asked = func.jsonb_build_object(
        "domain", Job.result_data["domain"], "max_pages", Job.result_data["max_pages"]
    )
    return case((Job.job_type == SITEMAP_JOB, asked), else_=Job.result_data)
