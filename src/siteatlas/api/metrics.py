"""`/metrics` in the text format of Prometheus: the queue as the database sees it, and this process.

Label sets are fixed: every series is there from the first answer on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Depends, Response

from siteatlas import __version__
from siteatlas.access.users import current_user
from siteatlas.api.context import Context
from siteatlas.api.documentation import problems
from siteatlas.errors import DatabaseError
from siteatlas.insights.health import pool_state
from siteatlas.insights.queue_load import QueueLoad, queue_load
from siteatlas.meters import Meters, meters
from siteatlas.queue.statuses import FINAL
from siteatlas.scanner.events import DocumentOutcome
from siteatlas.storage.session import get_session

# Prometheus itself waits for ten seconds, and shall hear of an outage.
DATABASE_SECONDS = 3.0
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LONGEST_ANSWER = 100_000
TEXT = {"schema": {"type": "string", "maxLength": LONGEST_ANSWER}}
DESCRIBED: dict[int | str, dict[str, Any]] = {
    200: {"description": "Series in text.", "content": {"text/plain": TEXT}}
}

router = APIRouter(tags=["operations"], dependencies=[Depends(current_user)])


@dataclass(frozen=True, slots=True)
class Series:
    """One metric with its samples: a number, or one number for each value of a label."""

    name: str
    kind: str
    help: str
    samples: float | Mapping[str, float]
    label: str = ""

    def lines(self) -> Iterator[str]:
        """The metric in the text format."""
        yield f"# HELP siteatlas_{self.name} {self.help}"
        yield f"# TYPE siteatlas_{self.name} {self.kind}"
        if isinstance(self.samples, Mapping):
            for value, number in self.samples.items():
                yield f'siteatlas_{self.name}{{{self.label}="{value}"}} {number:.10g}'
        else:
            yield f"siteatlas_{self.name} {self.samples:.10g}"


@router.get(
    "/metrics",
    summary="Numbers for Prometheus",
    response_class=Response,
    responses={**DESCRIBED, **problems()},
)
async def get_metrics(context: Context) -> Response:
    """The queue, and what this process has done; without a database only the latter."""
    try:
        async with (
            asyncio.timeout(DATABASE_SECONDS),
            get_session() as session,
            session.begin(),
        ):
            load = await queue_load(session, context.ended_jobs)
    except (DatabaseError, TimeoutError):
        load = None
    series = [*queue_series(load), *process_series(meters)]
    text = "\n".join(line for one in series for line in one.lines())
    return Response(text + "\n", media_type=MEDIA_TYPE)


def queue_series(load: QueueLoad | None) -> Iterator[Series]:
    """What the database says; only that it is away when it is."""
    answers = int(load is not None)
    yield Series("database_up", "gauge", "1 when the database answered in time.", answers)
    if load is None:
        return
    yield Series("jobs", "gauge", "Jobs by status.", load.jobs, "status")
    age = load.oldest_pending_seconds
    yield Series("oldest_pending_seconds", "gauge", "Age of the oldest job that could run.", age)
    yield Series("workers", "gauge", "Processes that work, seen within a minute.", load.workers)


def process_series(counted: Meters) -> Iterator[Series]:
    """What this process did since it started."""
    yield Series("build_info", "gauge", "The version.", {__version__: 1}, "version")
    yield Series("claims_total", "counter", "Jobs claimed.", counted.claims)
    yield Series("rescues_total", "counter", "Jobs taken from silent workers.", counted.rescues)
    losses = counted.lease_losses
    yield Series("lease_losses_total", "counter", "Jobs lost to another worker.", losses)
    ends = {status.value: counted.jobs_ended[status.value] for status in FINAL}
    yield Series("jobs_ended_total", "counter", "Jobs ended, by status.", ends, "status")
    read = {outcome.value: counted.documents[outcome.value] for outcome in DocumentOutcome}
    yield Series("documents_total", "counter", "Documents read, by outcome.", read, "outcome")
    yield Series("urls_total", "counter", "Listings read.", counted.urls)
    yield Series("fetched_bytes_total", "counter", "Bytes fetched.", counted.fetched_bytes)
    yield Series("fetch_seconds_total", "counter", "Time in documents.", counted.fetch_seconds)
    yield Series("writes_total", "counter", "Transactions that wrote rows.", counted.writes)
    yield Series("write_seconds_total", "counter", "Time in them.", counted.write_seconds)
    pool = pool_state()
    kept = {"size": pool.size, "in_use": pool.in_use, "overflow": pool.overflow}
    yield Series("pool_connections", "gauge", "Database connections.", kept, "kind")
    lag = {"last": counted.loop_lag_seconds, "longest": counted.longest_loop_lag_seconds}
    yield Series("loop_lag_seconds", "gauge", "How late the loop wakes.", lag, "kind")
