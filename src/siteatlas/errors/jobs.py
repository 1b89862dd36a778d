"""Errors of the scheduler and of a job, apart from what its scan meets."""

from __future__ import annotations

from siteatlas.errors.base import SiteatlasError


class SchedulerEnded(SiteatlasError):
    """This process no longer runs jobs; its log says why. Restart it."""

    code = "scheduler_ended"
    http_status = 503


class JobError(SiteatlasError):
    """The job cannot continue."""

    code = "job_failed"


class JobDataInvalid(JobError):
    """The job does not specify a site to scan."""

    code = "job_data_invalid"


class LeaseLost(JobError):
    """Another worker has taken over the job."""

    code = "lease_lost"


class JobCancelled(JobError):
    """The job was cancelled."""

    code = "cancelled"


class JobPoison(JobError):
    """Workers repeatedly died while running this job, and it never finished a document."""

    code = "poison"
