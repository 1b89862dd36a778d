"""Metrics for Prometheus: the queue as the database sees it, and this process.

The series of the process come from one registry. Those of the queue need a query, so they are
collected from its result, one `QueueCollector` per scrape. Label sets are fixed and every series
is there from the first scrape on; only those of HTTP requests appear with the first request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from siteatlas.insights.health import pool_state
from siteatlas.insights.queue_load import QueueLoad
from siteatlas.meters import Meters, meters
from siteatlas.queue.statuses import FINAL_STATUSES
from siteatlas.scanner.events import DocumentOutcome, UnchangedBy
from siteatlas.storage.models import ChangeKind

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4


def process_metrics(version: str) -> str:
    """Metrics of this process, in the Prometheus text format."""
    return generate_latest(metrics_registry(version)).decode()


def queue_metrics(load: QueueLoad | None) -> str:
    """Metrics of the queue, in the Prometheus text format; without a database `load` is None."""
    registry = CollectorRegistry()
    registry.register(QueueCollector(load))
    return generate_latest(registry).decode()


@cache
def metrics_registry(version: str) -> CollectorRegistry:
    """The Prometheus registry of the metrics of this process."""
    registry = CollectorRegistry()
    registry.register(BuildCollector(version))
    registry.register(MetersCollector(meters))
    ProcessCollector(registry=registry)
    for instrument in (
        meters.fetch_duration,
        meters.write_duration,
        meters.claim_duration,
        meters.request_duration,
        meters.requests,
    ):
        registry.register(instrument)
    return registry


class QueueCollector(Collector):
    """The queue as the database sees it; only `database_up 0` when it does not answer."""

    def __init__(self, load: QueueLoad | None) -> None:
        self._load = load

    def collect(self) -> Iterator[Metric]:
        """The Prometheus metrics of the queue, from the load that was read from the database."""
        load = self._load
        yield _gauge("database_up", "1 when the database answered in time.", load is not None)
        if load is None:
            return
        yield _gauges("jobs", "Jobs by status.", "status", load.jobs)
        age = load.oldest_pending_seconds
        yield _gauge("oldest_pending_seconds", "Age of the oldest job that is ready to run.", age)
        yield _gauge("workers", "Workers seen within the last minute.", load.workers)
        overdue = load.domains_overdue
        yield _gauge("domains_overdue", "Watched sites that are due and not queued.", overdue)
        late = load.oldest_overdue_seconds
        yield _gauge("oldest_overdue_seconds", "Delay of the site that is overdue longest.", late)
        yield _gauge("feed_head", "Last number of the change feed.", load.feed.head)
        first = load.feed.retained_from
        yield _gauge("feed_retained_from", "Number up to which events have been removed.", first)
        held = load.feed.domains_held
        yield _gauge("domains_held", "Sites whose removals are held back.", held)
        missing = load.feed.urls_held
        yield _gauge("urls_held", "Missing URLs of sites whose removals are held back.", missing)
        endpoints = load.webhooks.endpoints
        yield _gauges("webhooks", "Webhooks by status.", "status", endpoints)
        behind = load.webhooks.behind
        yield _gauge("webhooks_behind", "Numbers by which the slowest webhook is behind.", behind)
        yield _gauge("database_bytes", "Disk space of the database.", load.database_bytes)


class BuildCollector(Collector):
    """The version of this process."""

    def __init__(self, version: str) -> None:
        self._version = version

    def collect(self) -> Iterator[Metric]:
        """The Prometheus metric that holds the version."""
        yield InfoMetricFamily("siteatlas_build", "The version.", {"version": self._version})


class MetersCollector(Collector):
    """The counts of this process, its database connections and its event loop."""

    def __init__(self, counted: Meters) -> None:
        self._counted = counted

    def collect(self) -> Iterator[Metric]:
        """The Prometheus metrics that this process counts."""
        yield from self._job_metrics()
        yield from self._document_metrics()
        yield from self._process_state_metrics()

    def _job_metrics(self) -> Iterator[Metric]:
        """Prometheus metrics of the jobs that this process claimed and ended."""
        counted = self._counted
        yield _counter("claims", "Jobs claimed.", counted.claims)
        yield _counter("rescues", "Jobs rescued after their lease expired.", counted.rescues)
        yield _counter(
            "lease_losses", "Jobs whose lease was lost to another worker.", counted.lease_losses
        )
        statuses = (status.value for status in FINAL_STATUSES)
        yield _counters(
            "jobs_ended", "Jobs ended, by status.", "status", statuses, counted.jobs_ended
        )

    def _document_metrics(self) -> Iterator[Metric]:
        """Prometheus metrics of the documents that this process read."""
        counted = self._counted
        outcomes = (outcome.value for outcome in DocumentOutcome)
        yield _counters(
            "documents", "Documents read, by outcome.", "outcome", outcomes, counted.documents
        )
        reasons = (reason.value for reason in UnchangedBy)
        yield _counters(
            "documents_unchanged",
            "Unchanged documents, by how that was found out.",
            "reason",
            reasons,
            counted.unchanged_documents,
        )
        kinds = (kind.value for kind in ChangeKind)
        yield _counters("changes", "Changes of URLs published.", "kind", kinds, counted.changes)
        yield _counter("urls", "URLs read.", counted.urls)
        yield _counter("fetched_bytes", "Bytes fetched.", counted.fetched_bytes)
        yield _counters(
            "webhook_attempts",
            "Attempts to deliver webhook messages, by outcome.",
            "outcome",
            ("delivered", "failed"),
            counted.webhook_attempts,
        )

    def _process_state_metrics(self) -> Iterator[Metric]:
        """Prometheus metrics of the connection pool, event loop and heartbeat."""
        counted = self._counted
        pool = pool_state()
        connections = {"size": pool.size, "in_use": pool.in_use, "overflow": pool.overflow}
        yield _gauges("pool_connections", "Database connections.", "kind", connections)
        lag = {"last": counted.loop_lag_seconds, "longest": counted.longest_loop_lag_seconds}
        yield _gauges("loop_lag_seconds", "Event loop lag.", "kind", lag)
        beat = counted.heartbeat_timestamp()
        yield _gauge("heartbeat_timestamp_seconds", "Unix time of the last heartbeat.", beat)


def _gauge(name: str, text: str, value: float) -> Metric:
    """A Prometheus gauge with a single value."""
    return GaugeMetricFamily(f"siteatlas_{name}", text, value)


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """A Prometheus gauge with one series per value of its label."""
    family = GaugeMetricFamily(f"siteatlas_{name}", text, labels=[label])
    for label_value, value in values.items():
        family.add_metric([label_value], value)
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    """A Prometheus counter with a single value."""
    return CounterMetricFamily(f"siteatlas_{name}", text, value)


def _counters(
    name: str, text: str, label: str, labels: Iterable[str], counts: Mapping[str, float]
) -> Metric:
    """A Prometheus counter with one series per value of its label."""
    family = CounterMetricFamily(f"siteatlas_{name}", text, labels=[label])
    for label_value in labels:
        family.add_metric([label_value], counts[label_value])
    return family
