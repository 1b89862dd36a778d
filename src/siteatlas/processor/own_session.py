"""Runs one waiting job by its id, in this process and without a worker.

It claims the job and renews its lease itself; everything else is done by `processing`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

from siteatlas.aio.background import background_task
from siteatlas.errors import AddressError, DatabaseError, JobNotFound
from siteatlas.logs import get_logger
from siteatlas.net.address import parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.processor.job_activity import JobActivity
from siteatlas.processor.processing import Processor
from siteatlas.processor.recount import recount_site
from siteatlas.queue.claims import claim_one
from siteatlas.queue.fence import Claim
from siteatlas.queue.job_service import job_service
from siteatlas.queue.leases import HEARTBEATS_PER_LEASE, heartbeat
from siteatlas.queue.statuses import UNPUBLISHED
from siteatlas.settings_loading import load_settings
from siteatlas.storage.models import JobStatus
from siteatlas.storage.session import get_background_session

log = get_logger("processor")


async def process_domain_with_own_session(
    job_id: str | int | UUID,
    domain: str | None = None,
    user_id: str | UUID | None = None,  # noqa: ARG001  # a job keeps its owner
    max_urls: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> JobStatus | None:
    """Run one waiting job now, in this process, with a database that is open in it.

    For callers that know a job only by its id. None when there is nothing
    to run: the job is unknown (a warning says so), or it is not waiting. `domain` is the site of
    a job that names none; one that names another keeps it, with a warning. `user_id` changes
    nothing: a job belongs to its submitter. `max_urls`, or `max_urls` in `options`, takes
    the place of the job's own limit.
    """
    settings = load_settings().settings
    processor = Processor(settings, EgressPolicy.from_text(settings.egress_allow))
    claim = await _claim_waiting(job_id, settings.lease_seconds)
    if claim is None:
        return None
    limit = max_urls if max_urls is not None else (options or {}).get("max_urls")
    claim = replace(_with_site(claim, domain), max_pages=limit or claim.max_pages)
    async with background_task(_keep_lease(claim, settings.lease_seconds)):
        status = await processor.run(claim, JobActivity())
    if status in UNPUBLISHED:
        await recount_site(claim.id)
    return status


async def _claim_waiting(job_id: str | int | UUID, lease_seconds: float) -> Claim | None:
    """Claim a job that this process is to run; None if it is missing or not pending."""
    try:
        async with get_background_session() as session, session.begin():
            job = await job_service.get_by_id(session, job_id)
            claim = await claim_one(session, job.id, "own-session", lease_seconds)
    except JobNotFound:
        log.warning("job_not_found", job_id=str(job_id))
        return None
    if claim is None:
        log.info("job_not_pending", job_id=str(job_id), status=job.status)
    return claim


def _with_site(claim: Claim, domain: str | None) -> Claim:
    """The claim with a site: its own, or the given one when it has none."""
    if not domain:
        return claim
    if claim.domain is None:
        return replace(claim, domain=domain, base_url=domain)
    with suppress(AddressError):
        if parse_site(domain).domain == parse_site(claim.domain).domain:
            return claim
    log.warning("domain_mismatch", job_id=str(claim.job_id), domain=claim.domain, given=domain)
    return claim


async def _keep_lease(claim: Claim, lease_seconds: float) -> None:
    """Renew the lease of a job that runs outside of a worker."""
    while True:
        await asyncio.sleep(lease_seconds / HEARTBEATS_PER_LEASE)
        with suppress(DatabaseError):
            async with get_background_session() as session, session.begin():
                await heartbeat(session, [claim], lease_seconds)
