"""A group of worker processes: started together, and all stopped when one of them exits."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from siteatlas.cli.hosting.metrics_options import port_of
from siteatlas.cli.terminal.context import current
from siteatlas.cli.terminal.output import print_warning
from siteatlas.cli.terminal.signals import SIGNAL_EXIT, stop_on_signals
from siteatlas.logs import get_logger, stderr_is_json
from siteatlas.settings import Settings

# A signal that arrives before a worker handles signals ends it directly.
GOOD_ENDS = (0, -signal.SIGTERM)

log = get_logger("worker")


async def run_group(count: int, settings: Settings) -> int:
    """Run `count` workers until all have ended; returns the exit code."""
    ports = [port_of(settings, number, count) for number in range(count)]
    with _lifeline() as lifeline:
        group = WorkerGroup(
            [await _start_worker(lifeline, _metrics_options(settings, port)) for port in ports]
        )
        with stop_on_signals(group.stop):
            return await group.ended()


class WorkerGroup:
    """Running workers that end together."""

    def __init__(self, workers: Sequence[Process]) -> None:
        self._workers = workers
        self._stopping = False

    def stop(self) -> None:
        """Send SIGTERM to all workers, once only: a second one would end a worker immediately."""
        if self._stopping:
            return
        self._stopping = True
        for process in self._workers:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)

    async def ended(self) -> int:
        """Wait for all workers; returns the exit code of the first that failed, or 0."""
        ends = asyncio.as_completed([self._ended(process) for process in self._workers])
        codes = [await end for end in ends]
        return next((code for code in codes if code), 0)

    async def _ended(self, process: Process) -> int:
        """Wait for one worker process; stop the group if it fails; returns its exit code."""
        status = await process.wait()
        if self._stopping and status in GOOD_ENDS:
            return 0
        self._report_end(process.pid, status)
        self.stop()
        return exit_code_of(status)

    def _report_end(self, pid: int, status: int) -> None:
        """Log and print that a process of the worker group ended unexpectedly."""
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        rest = "" if self._stopping else "; stopping the others"
        if not stderr_is_json():
            print_warning(f"Process {pid} ended {how}{rest}.")
        log.error("worker_process_ended", pid=pid, exit_code=exit_code_of(status))


def exit_code_of(status: int) -> int:
    """The exit code for the status of a process, as shells report it."""
    return SIGNAL_EXIT - status if status < 0 else status


@contextmanager
def _lifeline() -> Iterator[int]:
    """The stdin of the workers: it ends when this process does, however that happens."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)


def _metrics_options(settings: Settings, port: int | None) -> list[str]:
    """The command-line options for the metrics port of one worker of the group."""
    if port is None:
        return []
    return ["--metrics-port", str(port), "--metrics-host", settings.metrics_host]


async def _start_worker(lifeline: int, options: Sequence[str]) -> Process:
    """Start a worker in its own session: a Ctrl-C must reach it only once, through this process."""
    switches = ["-v"] * current().verbosity + ["-q"] * current().quiet
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "siteatlas.cli.hosting.worker_process", *switches, *options),
        stdin=lifeline,
        start_new_session=True,
    )
