"""What this process has done since it started: plain counts, and histograms of durations.

One event loop writes the counts, so nothing is locked. The histograms belong to no registry here:
`insights.metrics` decides what is exposed and how.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from prometheus_client import Counter as LabelledCounter
from prometheus_client import Histogram, disable_created_metrics

LAG_CHECK_SECONDS = 0.5
REQUEST_LABELS = ("method", "route")
# Upper bounds in seconds. A document may take minutes; a statement or an answer takes milliseconds.
DOCUMENT_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
STATEMENT_BUCKETS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

# Otherwise each histogram and counter has one more series, with the time it was created.
disable_created_metrics()  # type: ignore[no-untyped-call]

_document_times = partial(Histogram, registry=None, buckets=DOCUMENT_BUCKETS)
_statement_times = partial(Histogram, registry=None, buckets=STATEMENT_BUCKETS)


@dataclass(slots=True)
class Meters:
    """Counts and seconds.

    `documents` is by outcome, `unchanged_documents` by how that was found out, `jobs_ended` by the
    status they ended in, `changes` of URLs by kind, as published, `webhook_attempts` by outcome.
    """

    claims: int = 0
    rescues: int = 0
    lease_losses: int = 0
    jobs_ended: Counter[str] = field(default_factory=Counter)
    documents: Counter[str] = field(default_factory=Counter)
    unchanged_documents: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    urls: int = 0
    fetched_bytes: int = 0
    webhook_attempts: Counter[str] = field(default_factory=Counter)
    loop_lag_seconds: float = 0.0
    longest_loop_lag_seconds: float = 0.0
    clock: Callable[[], float] = time.monotonic
    disk_full_until: float = 0.0
    heartbeat_at: float | None = None
    polled_at: float | None = None
    fetch_duration: Histogram = field(
        default_factory=lambda: _document_times(
            "siteatlas_fetch_duration_seconds",
            "Time from the request for a document to the end of reading it.",
        )
    )
    write_duration: Histogram = field(
        default_factory=lambda: _statement_times(
            "siteatlas_write_duration_seconds",
            "Duration of the transactions that write rows of a scan.",
        )
    )
    claim_duration: Histogram = field(
        default_factory=lambda: _statement_times(
            "siteatlas_claim_duration_seconds",
            "Duration of the transactions that claim jobs, including those that find none.",
        )
    )
    request_duration: Histogram = field(
        default_factory=lambda: _statement_times(
            "siteatlas_http_request_duration_seconds",
            "Time from an HTTP request to the end of its response.",
            REQUEST_LABELS,
        )
    )
    requests: LabelledCounter = field(
        default_factory=lambda: LabelledCounter(
            "siteatlas_http_requests_total",
            "HTTP requests by class of status code.",
            (*REQUEST_LABELS, "status"),
            registry=None,
        )
    )

    def record_heartbeat(self) -> None:
        """Set the meter of the heartbeat loop: it completed an iteration, successful or not."""
        self.heartbeat_at = time.monotonic()

    def record_poll(self) -> None:
        """Set the meter of the poll loop: it completed an iteration, successful or not."""
        self.polled_at = time.monotonic()

    def heartbeat_timestamp(self) -> float:
        """Unix time of the last heartbeat; 0 in a process that does not work on the queue."""
        if self.heartbeat_at is None:
            return 0.0
        return time.time() - (time.monotonic() - self.heartbeat_at)

    def timed_write(self) -> AbstractContextManager[object]:
        """Measure one transaction that writes rows of a scan, whether it succeeds or not."""
        return self.write_duration.time()

    @asynccontextmanager
    async def timed_claim(self) -> AsyncIterator[None]:
        """Measure one transaction that claims jobs, whether it succeeds or not."""
        with self.claim_duration.time():
            yield

    def observe_request(self, method: str, route: str, status: str, seconds: float) -> None:
        """Count one HTTP request; the caller keeps the number of label values small."""
        self.request_duration.labels(method, route).observe(seconds)
        self.requests.labels(method, route, status).inc()


meters = Meters()


async def watch_loop_lag() -> None:
    """Keep the loop lag meters of this process up to date, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_CHECK_SECONDS
        await asyncio.sleep(LAG_CHECK_SECONDS)
        lag = max(0.0, loop.time() - due)
        meters.loop_lag_seconds = lag
        meters.longest_loop_lag_seconds = max(meters.longest_loop_lag_seconds, lag)
