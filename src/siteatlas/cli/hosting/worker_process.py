"""A worker process of a group; it shuts down when its parent process is gone."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Annotated

import typer

from siteatlas.cli.hosting.workers import MetricsHost, MetricsPort, work
from siteatlas.cli.terminal.context import ColorChoice, begin, prepare
from siteatlas.cli.terminal.errors import exit_with, run, stop_on_signals
from siteatlas.logs import get_logger
from siteatlas.settings import Settings

log = get_logger("worker")

app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)


@app.command()
def group_worker(
    verbose: Annotated[int, typer.Option("--verbose", "-v", count=True)] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q")] = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = None,
) -> None:
    """Work on the queue until told to stop, or until stdin ends."""
    begin(verbose, quiet=quiet, color=ColorChoice.AUTO)
    settings = prepare(log_level="info", metrics_port=metrics_port, metrics_host=metrics_host)
    run(_work(settings))


async def _work(settings: Settings) -> None:
    """Run a worker of a group until a signal comes or its parent process is gone."""
    stop, drain = asyncio.Event(), asyncio.Event()
    # The group prints its own message when it is stopped.
    with stop_on_signals(stop.set, announce=lambda _words: None, drain=drain.set):
        _stop_at_end_of_stdin(stop)
        await work(settings, stop, drain)


def _stop_at_end_of_stdin(stop: asyncio.Event) -> None:
    """Raise SIGTERM in this process, so that the shutdown timeout applies here too."""
    loop = asyncio.get_running_loop()

    def stop_orphaned_worker() -> None:
        """Shut down this worker process: its parent, the worker group, is gone."""
        loop.remove_reader(sys.stdin)
        if not stop.is_set():
            log.warning("parent_process_exited")
            signal.raise_signal(signal.SIGTERM)

    loop.add_reader(sys.stdin, stop_orphaned_worker)


def main() -> None:
    """Run one worker of a group."""
    try:
        app()
    except Exception as error:  # noqa: BLE001 the error boundary of one command
        exit_with(error)


if __name__ == "__main__":
    main()
