"""A worker: the scheduler without HTTP, for as long as it is wanted."""

from __future__ import annotations

import asyncio

from siteatlas.net.egress import EgressPolicy, self_check
from siteatlas.scheduler.sitemap_scheduler import SitemapScheduler
from siteatlas.settings import Settings


async def run_worker(settings: Settings, policy: EgressPolicy, *, stop: asyncio.Event) -> None:
    """Work until `stop` is set, then give back what could not be finished.

    SchedulerEnded when the work has come to an end by itself.
    """
    self_check()
    scheduler = SitemapScheduler(settings, policy)
    await scheduler.start()
    try:
        await scheduler.run_until(stop)
    finally:
        await scheduler.shutdown()
