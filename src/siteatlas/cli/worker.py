"""`siteatlas worker`: work on the queue in one process or several."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import typer

from siteatlas.cli.border import run
from siteatlas.cli.opening import opened
from siteatlas.cli.output import say
from siteatlas.cli.preparation import prepare
from siteatlas.cli.stopping import stop_on_signals
from siteatlas.cli.worker_group import run_group
from siteatlas.net.egress import EgressPolicy
from siteatlas.scheduler.runner import run_worker
from siteatlas.settings import Settings
from siteatlas.turns import spare_what_stays

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
        run(_work_alone(settings))
    else:
        raise typer.Exit(run(run_group(processes)))


async def _work_alone(settings: Settings) -> None:
    stop = asyncio.Event()
    with stop_on_signals(stop.set):
        await work(settings, stop)


async def work(settings: Settings, stop: asyncio.Event) -> None:
    """Work on the queue, with a database of its own, until `stop` is set."""
    policy = EgressPolicy.from_text(settings.egress_allow)
    async with opened(settings):
        os.nice(BEHIND_THE_API)  # not before: a server that we start must not inherit it
        spare_what_stays()
        say("Working on the queue.")
        await run_worker(settings, policy, stop=stop)
