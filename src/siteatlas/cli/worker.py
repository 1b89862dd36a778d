"""`siteatlas worker`: work on the queue in one process or several."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from typing import Annotated

import typer

from siteatlas.cli.border import run
from siteatlas.cli.invocation import current
from siteatlas.cli.opening import opened
from siteatlas.cli.output import say
from siteatlas.cli.preparation import prepare
from siteatlas.cli.stopping import stop_on_signals
from siteatlas.net.egress import EgressPolicy
from siteatlas.scheduler.runner import run_worker
from siteatlas.settings import Settings
from siteatlas.turns import spare_what_stays

# A worker that was asked to end before it had started ends by the signal itself.
GOOD_ENDS = (0, -signal.SIGTERM)

# On a shared machine, whoever waits for an answer goes before the reading of sitemaps.
BEHIND_THE_API = 10

app = typer.Typer(rich_markup_mode=None)


@app.command()
def worker(
    processes: Annotated[int, typer.Option(min=1, max=64, help="How many to run.")] = 1,
) -> None:
    """Work on the queue until told to stop. Any number may run, on any number of machines."""
    settings = prepare(log_level="info")
    if processes == 1:
        run(_work(settings))
    else:
        raise typer.Exit(run(_supervise(processes)))


async def _work(settings: Settings) -> None:
    policy = EgressPolicy.from_text(settings.egress_allow)
    stop = asyncio.Event()
    with stop_on_signals(stop.set):
        async with opened(settings):
            os.nice(BEHIND_THE_API)  # not before: a server that we start must not inherit it
            spare_what_stays()
            say("Working on the queue.")
            await run_worker(settings, policy, stop=stop)


async def _supervise(count: int) -> int:
    """Run several workers; when one ends, the others are asked to end too."""
    workers = [await _start_worker() for _ in range(count)]
    asked = False

    def stop_all() -> None:
        """Once only: a worker that is asked twice leaves at once."""
        nonlocal asked
        if asked:
            return
        asked = True
        for process in workers:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)

    with stop_on_signals(stop_all):
        ends = [asyncio.create_task(process.wait()) for process in workers]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        stop_all()
        codes = await asyncio.gather(*ends)
    return next((abs(code) for code in codes if code not in GOOD_ENDS), 0)


async def _start_worker() -> Process:
    """A worker in a session of its own: a Ctrl-C must reach it once, through us."""
    switches = ["-v"] * current().verbosity + ["-q"] * current().quiet
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "siteatlas.cli", *switches, "worker", start_new_session=True
    )
