"""A group of worker processes: started together, and all stopped when one of them exits."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

import typer

from siteatlas import __version__
from siteatlas.aio import background_task
from siteatlas.cli.hosting.connections import base_url, listen
from siteatlas.cli.terminal.context import current
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import SIGNAL_EXIT, stop_on_signals
from siteatlas.cli.terminal.output import print_message, print_warning
from siteatlas.errors import ConfigurationError, DatabaseUnavailable
from siteatlas.logs import get_logger, stderr_is_json
from siteatlas.meters import meters, watch_loop_lag
from siteatlas.net.egress import EgressPolicy, self_check
from siteatlas.process import freeze_startup_objects
from siteatlas.queue.metrics import MEDIA_TYPE, process_metrics
from siteatlas.scanner.reading.document import load_readers
from siteatlas.scheduler.outages import Liveness
from siteatlas.scheduler.sitemap_scheduler import SitemapScheduler
from siteatlas.settings import MAX_PORT, Settings
from siteatlas.storage.session import BACKGROUND_LIMITS

log = get_logger("worker")

# A signal that arrives before a worker handles signals ends it directly.
GOOD_ENDS = (0, -signal.SIGTERM, -signal.SIGUSR1)

# On a shared machine, API requests take precedence over scans.
WORKER_NICENESS = 10

MAX_HEAD_BYTES = 8 * 1024
CONNECTION_SECONDS = 5.0
MAX_CONNECTIONS = 16
PLAIN = "text/plain; charset=utf-8"


async def run_group(count: int, settings: Settings) -> int:
    """Run `count` workers until all have ended; returns the exit code."""
    ports = [port_of(settings, number, count) for number in range(count)]
    with _lifeline() as lifeline:
        group = WorkerGroup(
            [await _start_worker(lifeline, _metrics_options(settings, port)) for port in ports]
        )
        with stop_on_signals(group.stop, drain=group.drain):
            return await group.ended()


class WorkerGroup:
    """Running workers that end together."""

    def __init__(self, workers: Sequence[Process]) -> None:
        self._workers = workers
        self._stopping = self._draining = False

    def drain(self) -> None:
        """Let each worker end when its jobs have ended."""
        self._draining = True
        self._send(signal.SIGUSR1)

    def stop(self) -> None:
        """Send SIGTERM to all workers, once only: a second one would end a worker immediately."""
        if self._stopping:
            return
        self._stopping = True
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        for process in self._workers:
            if process.returncode is None:
                process.send_signal(number)

    async def ended(self) -> int:
        """Wait for all workers; returns the exit code of the first that failed, or 0."""
        ends = asyncio.as_completed([self._ended(process) for process in self._workers])
        codes = [await end for end in ends]
        return next((code for code in codes if code), 0)

    async def _ended(self, process: Process) -> int:
        """Wait for one worker process; stop the group if it fails; returns its exit code."""
        status = await process.wait()
        if (self._stopping or self._draining) and status in GOOD_ENDS:
            return 0
        self._report_end(process.pid, status)
        self.stop()
        return exit_code_of(status)

    def _report_end(self, pid: int, status: int) -> None:
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


async def work(settings: Settings, stop: asyncio.Event, drain: asyncio.Event) -> None:
    """Open the database and run queued jobs until `stop` is set.

    From `drain` on, claim no more jobs, and stop when those that run have ended.
    """
    try:
        await _work(settings, stop, drain)
    except DatabaseUnavailable:
        # Stopped while waiting for the database: its absence needs no report.
        if not stop.is_set() and not drain.is_set():
            raise


async def _work(settings: Settings, stop: asyncio.Event, drain: asyncio.Event) -> None:
    policy = EgressPolicy.from_text(settings.egress_allow)
    with probe_listener(settings) as listener:
        async with (
            probes(settings, listener),
            opened(
                settings,
                go_on_waiting=lambda: not stop.is_set() and not drain.is_set(),
                usual_limits=BACKGROUND_LIMITS,
            ),
        ):
            await _work_with_database(settings, policy, stop, drain)


async def _work_with_database(
    settings: Settings, policy: EgressPolicy, stop: asyncio.Event, drain: asyncio.Event
) -> None:
    """Lower the priority of this worker process and run its scheduler until `stop` is set."""
    os.nice(WORKER_NICENESS)  # not before: a server that we start must not inherit it
    load_readers()
    freeze_startup_objects()
    print_message("Running jobs from the queue.")
    self_check()
    scheduler = SitemapScheduler(settings, policy)

    async def stop_when_drained() -> None:
        await drain.wait()
        await scheduler.drain()
        stop.set()

    async with background_task(stop_when_drained()):
        await scheduler.run_until(stop)


@dataclass(frozen=True, slots=True)
class Page:
    """A response of the server."""

    text: str
    media_type: str = PLAIN
    status: HTTPStatus = HTTPStatus.OK


Pages = Mapping[str, Callable[[], Page]]


@asynccontextmanager
async def serve_pages(listener: socket.socket, pages: Pages) -> AsyncIterator[None]:
    """Serve `pages` on `listener` while the block runs; the listener is closed at its end."""
    visits: set[asyncio.Task[None]] = set()

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection to a worker's metrics port; close it if there are too many."""
        task = asyncio.current_task()
        assert task is not None
        visits.add(task)
        try:
            if len(visits) <= MAX_CONNECTIONS:
                await _answer_in_time(reader, writer, pages)
        finally:
            visits.discard(task)
            writer.close()

    server = await asyncio.start_server(visit, sock=listener, limit=MAX_HEAD_BYTES)
    try:
        yield
    finally:
        server.close()
        for task in visits:
            task.cancel()
        await asyncio.gather(*visits, return_exceptions=True)


async def _answer_in_time(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pages: Pages
) -> None:
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(CONNECTION_SECONDS):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError:
                head = b""
            writer.write(_probe_response(head, pages))
            await writer.drain()


def _probe_response(head: bytes, pages: Pages) -> bytes:
    words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    method = words[0]
    page = _page(words, pages)
    body = page.text.encode()
    lines = [
        f"HTTP/1.1 {page.status.value} {page.status.phrase}",
        f"Content-Type: {page.media_type}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else body)


def _page(words: list[str], pages: Pages) -> Page:
    match words:
        case ["GET" | "HEAD", target, "HTTP/1.0" | "HTTP/1.1"]:
            found = pages.get(target.partition("?")[0])
            return found() if found else _error_page(HTTPStatus.NOT_FOUND)
        case [_, _, "HTTP/1.0" | "HTTP/1.1"]:
            return _error_page(HTTPStatus.METHOD_NOT_ALLOWED)
        case _:
            return _error_page(HTTPStatus.BAD_REQUEST)


def _error_page(status: HTTPStatus) -> Page:
    return Page(f"{status.phrase}\n", status=status)


@contextmanager
def probe_listener(settings: Settings) -> Iterator[socket.socket | None]:
    """The socket for metrics and health; None if no metrics port is set."""
    if settings.metrics_port is None:
        yield None
        return
    host, port = settings.metrics_host, settings.metrics_port
    with listen(host, port, option="--metrics-port") as listener:
        yield listener


@asynccontextmanager
async def probes(settings: Settings, listener: socket.socket | None) -> AsyncIterator[None]:
    """Show metrics and health on `listener`, if there is one, while the block runs."""
    if listener is None:
        yield
        return
    liveness = Liveness(settings.lease_seconds, meters)
    pages = {"/metrics": _metrics, "/health": lambda: _health(liveness)}
    async with serve_pages(listener, pages), background_task(watch_loop_lag()):
        print_message(f"Metrics at {base_url(listener)}/metrics")
        yield


def _metrics() -> Page:
    return Page(process_metrics(__version__), MEDIA_TYPE)


def _health(liveness: Liveness) -> Page:
    """The page `/health` of a worker process; status 503 if it is not alive."""
    is_alive = liveness.is_alive
    state = {
        "status": "ok" if is_alive else "stale",
        "version": __version__,
        "heartbeat_age_seconds": round(liveness.heartbeat_age_seconds, 3),
        "heartbeat_limit_seconds": liveness.limit_seconds,
        "poll_age_seconds": round(liveness.poll_age_seconds, 3),
        "poll_limit_seconds": liveness.poll_limit_seconds,
        "loop_lag_seconds": round(meters.loop_lag_seconds, 4),
    }
    status = HTTPStatus.OK if is_alive else HTTPStatus.SERVICE_UNAVAILABLE
    return Page(json.dumps(state) + "\n", "application/json", status)


MetricsPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=MAX_PORT,
        help=(
            "Serve /metrics and /health on this port; 0 picks a free port. With --processes, "
            "consecutive ports are used.  [env: SITEATLAS_METRICS_PORT]"
        ),
    ),
]

MetricsHost = Annotated[
    str | None,
    typer.Option(
        help="Address to listen on for --metrics-port.  [default: 127.0.0.1]  "
        "[env: SITEATLAS_METRICS_HOST]"
    ),
]


def port_of(settings: Settings, number: int, count: int) -> int | None:
    """The metrics port of the process `number` of `count`: the first has the port of the settings,
    each other one the next.
    """
    first = settings.metrics_port
    if not first:
        return first
    if first + count - 1 > MAX_PORT:
        raise ConfigurationError(
            f"{count} processes need the metrics ports {first} to {first + count - 1}, but the "
            f"highest port is {MAX_PORT}. Choose a lower --metrics-port."
        )
    return first + number
