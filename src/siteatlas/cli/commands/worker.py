"""`siteatlas worker`: run queued jobs in one process or several."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from siteatlas.cli.hosting.workers import MetricsHost, MetricsPort, run_group, work
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.errors import run, stop_on_signals
from siteatlas.settings import Settings

app = typer.Typer(rich_markup_mode=None)


@app.command()
def worker(
    processes: Annotated[int, typer.Option(min=1, max=64, help="Number of worker processes.")] = 1,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = None,
) -> None:
    """Run queued jobs until stopped. Any number of workers can run, on any number of machines.

    SIGTERM returns running jobs to the queue; after SIGUSR1 the worker finishes them and exits.
    """
    settings = prepare(log_level="info", metrics_port=metrics_port, metrics_host=metrics_host)
    if processes == 1:
        run(_run_single_worker(settings))
    else:
        raise typer.Exit(run(run_group(processes, settings)))


async def _run_single_worker(settings: Settings) -> None:
    """The command `siteatlas worker` with one process: run jobs until a signal."""
    stop, drain = asyncio.Event(), asyncio.Event()
    with stop_on_signals(stop.set, drain=drain.set):
        await work(settings, stop, drain)
