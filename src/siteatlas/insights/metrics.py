"""Metrics in the text format of Prometheus: the queue as the database sees it, and this process.

Label sets are fixed: every series is there from the first answer on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from siteatlas.insights.health import pool_state
from siteatlas.insights.process_usage import process_usage
from siteatlas.insights.queue_load import QueueLoad
from siteatlas.meters import Meters, meters
from siteatlas.queue.statuses import FINAL_STATUSES
from siteatlas.scanner.events import DocumentOutcome

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Series:
    """One metric with its samples: a number, or one number for each value of a label."""

    name: str
    kind: str
    help: str
    samples: float | Mapping[str, float]
    label: str = ""
    prefix: str = "siteatlas_"

    def lines(self) -> Iterator[str]:
        """The metric in the text format."""
        name = self.prefix + self.name
        yield f"# HELP {name} {self.help}"
        yield f"# TYPE {name} {self.kind}"
        if isinstance(self.samples, Mapping):
            for value, number in self.samples.items():
                yield f'{name}{{{self.label}="{value}"}} {number:.15g}'
        else:
            yield f"{name} {self.samples:.15g}"


def exposition(series: Iterable[Series]) -> str:
    """The page that Prometheus reads."""
    return "".join(f"{line}\n" for one in series for line in one.lines())


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
    overdue = load.domains_overdue
    yield Series("domains_overdue", "gauge", "Watched sites past their time, not queued.", overdue)
    age = load.oldest_overdue_seconds
    yield Series("oldest_overdue_seconds", "gauge", "How late the first of them is.", age)


def process_series(version: str) -> Iterator[Series]:
    """What this process did since it started, and what it uses of the machine."""
    yield Series("build_info", "gauge", "The version.", {version: 1}, "version")
    yield from counted_series(meters)
    yield from usage_series()


def counted_series(counted: Meters) -> Iterator[Series]:
    """What this process did since it started."""
    yield Series("claims_total", "counter", "Jobs claimed.", counted.claims)
    yield Series("rescues_total", "counter", "Jobs taken from silent workers.", counted.rescues)
    losses = counted.lease_losses
    yield Series("lease_losses_total", "counter", "Jobs lost to another worker.", losses)
    ends = {status.value: counted.jobs_ended[status.value] for status in FINAL_STATUSES}
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
    beat = counted.heartbeat_timestamp()
    yield Series("heartbeat_timestamp_seconds", "gauge", "Time of the last heartbeat.", beat)


def usage_series() -> Iterator[Series]:
    """Memory, files and processor time of this process, under the names that all exporters use."""
    for name, kind, text, number in process_usage():
        yield Series(name, kind, text, number, prefix="process_")
