"""The ways in which a scan of the script is run: undisturbed, killed, stopped or cancelled first."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from sqlalchemy import func, select

from siteatlas.net.egress import EgressPolicy
from siteatlas.processor.processing import Processor
from siteatlas.processor.steps import JobActivity
from siteatlas.queue.fence import SubmittedJob
from siteatlas.queue.operator_actions import cancel
from siteatlas.storage.models import Job
from siteatlas.storage.session import get_background_session
from tests.fixtures.changing_site import ChangingSite
from tests.fixtures.crashes import run_until_crash
from tests.fixtures.pipeline import settings_for, submit_server, work
from tests.fixtures.queue import change, job_of, let_lease_expire, take_one
from tests.fixtures.waiting import wait_until

A_YEAR = 24 * 365


async def submit_watched(site: ChangingSite) -> SubmittedJob:
    """Queue a scan of a watched site that is tried once."""
    return await submit_server(site, watch=True, interval_hours=A_YEAR, max_attempts=1)


async def scan(site: ChangingSite) -> Job:
    """An undisturbed scan."""
    submitted = await submit_watched(site)
    await work(settings_for(site))
    return await job_of(submitted.id)


def processor_of(site: ChangingSite) -> Processor:
    """A worker of this process."""
    settings = settings_for(site)
    return Processor(settings, EgressPolicy.from_text(settings.egress_allow))


async def start_and_crash(site: ChangingSite, *, commit: int, after: bool) -> tuple[int, bool]:
    """Start a scan whose worker crashes at a COMMIT; its job, and whether it got that far."""
    submitted = await submit_watched(site)
    running = processor_of(site).run(await take_one(), JobActivity())
    crashed = await run_until_crash(running, commit=commit, after=after)
    if (await job_of(submitted.id)).status == "processing":
        await let_lease_expire(submitted.id)
    return submitted.id, crashed


async def finish(site: ChangingSite, job_id: int) -> Job:
    """Let another worker finish a job whose worker crashed, without the delay after a rescue."""
    await work(settings_for(site))
    if (await job_of(job_id)).status == "pending":
        await change(job_id, run_at=func.now())
        await work(settings_for(site))
    return await job_of(job_id)


async def killed(site: ChangingSite, *, commit: int, after: bool) -> tuple[Job, bool]:
    """A scan whose worker dies at a COMMIT and that another one ends; whether it died."""
    job_id, crashed = await start_and_crash(site, commit=commit, after=after)
    return await finish(site, job_id), crashed


async def stop_midway(site: ChangingSite, held: str) -> int | None:
    """Stop a scan that waits for a document, with all other rows written; None: it ended first."""
    site.hold(held)
    submitted = await submit_watched(site)
    task = asyncio.create_task(processor_of(site).run(await take_one(), JobActivity()))
    try:
        await wait_until(lambda: site.reached.is_set() or task.done())
        await asyncio.sleep(0.1)
        if task.done():
            return None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    finally:
        site.release()
    await let_lease_expire(submitted.id)
    return submitted.id


async def stopped(site: ChangingSite, held: str) -> tuple[Job, bool]:
    """A scan that is stopped in the middle and goes on later; whether it was."""
    job_id = await stop_midway(site, held)
    if job_id is None:
        return await last_job(), False
    return await finish(site, job_id), True


async def cancelled_first(site: ChangingSite, held: str) -> tuple[Job, bool]:
    """A scan that is cancelled after it wrote rows, and a new one; whether the first wrote any."""
    job_id = await stop_midway(site, held)
    if job_id is None:
        return await last_job(), False
    await cancel_dead(site, job_id)
    return await scan(site), True


async def cancel_dead(site: ChangingSite, job_id: int) -> None:
    """Cancel a job whose worker is dead."""
    async with get_background_session() as session, session.begin():
        await cancel(session, job_id)
    await work(settings_for(site))
    assert (await job_of(job_id)).status == "cancelled"


async def last_job() -> Job:
    """The job that was submitted last."""
    async with get_background_session() as session, session.begin():
        statement = select(Job).order_by(Job.id.desc()).limit(1)
        return (await session.execute(statement)).scalar_one()
