"""The metrics and health endpoints of a worker."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus

from siteatlas import __version__
from siteatlas.aio.background import background_task
from siteatlas.cli.hosting.listener import base_url, listen
from siteatlas.cli.hosting.probe_server import Page, serve_pages
from siteatlas.cli.terminal.output import print_message
from siteatlas.insights.metrics import MEDIA_TYPE, process_metrics
from siteatlas.meters import meters, watch_loop_lag
from siteatlas.scheduler.liveness import Liveness
from siteatlas.settings import Settings


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
    """The page `/metrics` of a worker process."""
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
