"""One worker process: runs queued jobs until it is stopped."""

from __future__ import annotations

import asyncio
import os

from siteatlas.cli.hosting.worker_probes import probe_listener, probes
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.output import print_message
from siteatlas.errors import DatabaseUnavailable
from siteatlas.net.egress import EgressPolicy, self_check
from siteatlas.process import freeze_startup_objects
from siteatlas.scanner.reading.document import load_readers
from siteatlas.scheduler.sitemap_scheduler import SitemapScheduler
from siteatlas.settings import Settings
from siteatlas.storage.session import BACKGROUND_LIMITS

# On a shared machine, API requests take precedence over scans.
WORKER_NICENESS = 10


async def work(settings: Settings, stop: asyncio.Event) -> None:
    """Open the database and run queued jobs until `stop` is set."""
    try:
        await _work(settings, stop)
    except DatabaseUnavailable:
        # Stopped while waiting for the database: its absence needs no report.
        if not stop.is_set():
            raise


async def _work(settings: Settings, stop: asyncio.Event) -> None:
    """Open the metrics port and the database of a worker process, then run queued jobs."""
    policy = EgressPolicy.from_text(settings.egress_allow)
    with probe_listener(settings) as listener:
        async with (
            probes(settings, listener),
            opened(
                settings,
                go_on_waiting=lambda: not stop.is_set(),
                usual_limits=BACKGROUND_LIMITS,
            ),
        ):
            await _work_with_database(settings, policy, stop)


async def _work_with_database(
    settings: Settings, policy: EgressPolicy, stop: asyncio.Event
) -> None:
    """Lower the priority of this worker process and run its scheduler until `stop` is set."""
    os.nice(WORKER_NICENESS)  # not before: a server that we start must not inherit it
    load_readers()
    freeze_startup_objects()
    print_message("Running jobs from the queue.")
    self_check()
    await SitemapScheduler(settings, policy).run_until(stop)
