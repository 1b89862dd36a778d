"""Rescues jobs whose lease has expired, and ends the scans of those that end with it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from siteatlas.errors import DatabaseUnavailable, SiteatlasError
from siteatlas.logs import get_logger
from siteatlas.meters import meters
from siteatlas.processor.processing import Recounts
from siteatlas.processor.publication import announce_failed_job, end_scan_with_job
from siteatlas.queue.completion import queue_follow_up_if_unpublished
from siteatlas.queue.fence import FINAL_STATUSES, UNPUBLISHED
from siteatlas.queue.rescues import release_orphans, rescue
from siteatlas.storage.models import Job, JobStatus
from siteatlas.storage.session import AsyncSession, get_background_session

log = get_logger("scheduler")
RETRY_SECONDS = 60.0
LOCKED_SECONDS = 5.0


class Rescuer:
    """One per process; remembers which jobs could not be rescued."""

    def __init__(self, recounts: Recounts) -> None:
        self._recounts = recounts
        self._retry_at: dict[int, float] = {}

    @property
    def ignored(self) -> list[int]:
        """The jobs that failed a short while ago."""
        now = time.monotonic()
        self._retry_at = {job: at for job, at in self._retry_at.items() if at > now}
        return list(self._retry_at)

    async def rescue(self, expired: Collection[int], *, count_deaths: bool) -> int:
        """Rescue these jobs if their leases are still expired. Return how many were rescued.

        All in one transaction, and one by one if that fails. A job whose domain is locked or whose
        rescue fails is ignored for a while.
        """
        try:
            rescued = await self._rescue(expired, count_deaths=count_deaths)
        except DatabaseUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - each is tried and logged on its own
            log.warning(
                "rescue_retried_individually", jobs=len(expired), error=_rescue_error_code(error)
            )
            rescued = await self._rescue_one_by_one(expired, count_deaths=count_deaths)
        self._ignore(set(expired) - rescued, LOCKED_SECONDS)
        return len(rescued)

    async def release_orphans(self, worker_id: str, running: Collection[int]) -> bool:
        """Release the jobs that this process holds without running them; False if that failed."""
        try:
            async with get_background_session(for_queue=True) as session, session.begin():
                jobs = await release_orphans(session, worker_id, running)
                ended = await _end_scans(session, jobs)
        except DatabaseUnavailable:
            raise
        except Exception as error:
            log.warning(
                "release_orphans_failed", error=_rescue_error_code(error), exc_info=_exc_info(error)
            )
            return False
        self._log_and_recount(ended)
        return True

    async def _rescue_one_by_one(self, expired: Collection[int], *, count_deaths: bool) -> set[int]:
        """Rescue expired jobs in one transaction each, for a limited time. Return their ids."""
        rescued: set[int] = set()
        # Each of several jobs may wait for a lock; new jobs must not wait for all of them.
        until = time.monotonic() + 5.0
        for job in expired:
            if time.monotonic() >= until:
                break
            try:
                rescued |= await self._rescue([job], count_deaths=count_deaths)
            except DatabaseUnavailable:
                raise
            except Exception as error:
                self._ignore([job], RETRY_SECONDS)
                log.warning(
                    "rescue_failed",
                    job=job,
                    error=_rescue_error_code(error),
                    exc_info=_exc_info(error),
                )
        return rescued

    async def _rescue(self, expired: Collection[int], *, count_deaths: bool) -> set[int]:
        async with get_background_session(for_queue=True) as session, session.begin():
            jobs = await rescue(session, count_deaths=count_deaths, only=expired)
            ended = await _end_scans(session, jobs)
        meters.rescues += len(ended)
        self._log_and_recount(ended)
        return {job.id for job in ended}

    def _log_and_recount(self, returned: list[_ReturnedJob]) -> None:
        for job in returned:
            log.warning("job_rescued", **job.log_fields)
            if job.status in FINAL_STATUSES:
                meters.jobs_ended[job.status] += 1
        self._recounts.start(*(job.id for job in returned if job.status in UNPUBLISHED))

    def _ignore(self, jobs: Collection[int], seconds: float) -> None:
        until = time.monotonic() + seconds
        for job in jobs:
            self._retry_at[job] = max(until, self._retry_at.get(job, 0.0))


@dataclass(frozen=True, slots=True)
class _ReturnedJob:
    """A job as it was when it was rescued; it may have been claimed again since."""

    id: int
    status: JobStatus
    log_fields: dict[str, Any]


async def _end_scans(session: AsyncSession, jobs: Iterable[Job]) -> list[_ReturnedJob]:
    ended = list(jobs)
    for job in ended:
        await end_scan_with_job(session, job.id, job.domain_id, job.status, job.error_code)
        await queue_follow_up_if_unpublished(session, job)
    # Numbers of the feed come last, since everybody who publishes waits for them.
    for job in ended:
        await announce_failed_job(session, job.id, job.domain_id, job.status, job.error_code)
    return [_ReturnedJob(job.id, job.status, _log_fields(job)) for job in ended]


def _rescue_error_code(error: Exception) -> str:
    return error.code if isinstance(error, SiteatlasError) else SiteatlasError.code


def _log_fields(job: Job) -> dict[str, Any]:
    return {
        "job_id": str(job.job_id),
        "domain": (job.result_data or {}).get("domain"),
        "status": str(job.status),
        "rescues": job.rescues,
        "error_code": job.error_code,
    }


def _exc_info(error: Exception) -> Exception | None:
    return None if isinstance(error, SiteatlasError) else error
