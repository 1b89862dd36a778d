"""Metrics for Prometheus: the queue as the database sees it, and this process.

The series of the process come from one registry. Those of the queue need a query, so they are
collected from its result, one `QueueCollector` per scrape. Label sets are fixed and every series
is there from the first scrape on; only those of HTTP requests appear with the first request.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from time import perf_counter

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from sqlalchemy import (
    Float,
    column,
    extract,
    func,
    select,
    table,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.pool import QueuePool

from siteatlas.catalog.access import last_backup_at
from siteatlas.catalog.change_feed import FeedLoad, feed_load
from siteatlas.catalog.domains import SCHEDULED
from siteatlas.catalog.views import SmallCount, View
from siteatlas.catalog.webhooks import WebhookLoad, webhook_load
from siteatlas.errors import DatabaseUnavailable
from siteatlas.meters import Meters, meters
from siteatlas.queue.claims import first_jobs
from siteatlas.queue.fence import ACTIVE_STATUSES, ALIVE_SECONDS, FINAL_STATUSES
from siteatlas.scanner.events import DocumentOutcome, UnchangedBy
from siteatlas.storage.models import SITEMAP_JOB, ChangeKind, Domain, Job, JobStatus, Worker
from siteatlas.storage.schema import needed_revision
from siteatlas.storage.session import bound_database
from siteatlas.storage.startup import database_size


@dataclass(frozen=True, slots=True)
class PoolView(View):
    """Database connections of this process."""

    size: SmallCount
    in_use: SmallCount
    overflow: SmallCount


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """Version, schema and speed of the answer, and whether anything can be written."""

    server_version: str
    is_read_only: bool
    schema_revision: str | None
    needed_revision: str
    latency_ms: float
    pool: PoolView


async def database_state(session: AsyncSession) -> DatabaseState:
    """Read version and schema of the server, and measure how long the statement takes."""
    versions = table("alembic_version", column("version_num"))
    known = select(versions.c.version_num).limit(1).scalar_subquery()
    start = perf_counter()
    asked = (func.current_setting(name) for name in ("server_version", "transaction_read_only"))
    row = (await session.execute(select(*asked, known))).one()
    latency = perf_counter() - start
    return DatabaseState(
        server_version=str(row[0]),
        is_read_only=row[1] == "on",
        schema_revision=row[2],
        needed_revision=needed_revision(),
        latency_ms=round(latency * 1000, 3),
        pool=pool_state(),
    )


def pool_state() -> PoolView:
    """Insight into the connection pools for `/health` and metrics; zeros if there is none."""
    try:
        engines = bound_database().engines
    except DatabaseUnavailable:
        engines = ()
    pools = [engine.pool for engine in engines if isinstance(engine.pool, QueuePool)]
    return PoolView(
        size=sum(pool.size() for pool in pools),
        in_use=sum(pool.checkedout() for pool in pools),
        overflow=sum(max(0, pool.overflow()) for pool in pools),
    )


MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4


def process_metrics(version: str) -> str:
    """Metrics of this process, in the Prometheus text format."""
    return generate_latest(metrics_registry(version)).decode()


def queue_metrics(load: QueueLoad | None, free_disk_bytes: int | None = None) -> str:
    """Metrics of the queue, in the Prometheus text format; without a database `load` is None."""
    registry = CollectorRegistry()
    registry.register(QueueCollector(load, free_disk_bytes))
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
    """The queue as the database sees it; only what needs no database when it does not answer."""

    def __init__(self, load: QueueLoad | None, free_disk_bytes: int | None) -> None:
        self._load = load
        self._free_disk_bytes = free_disk_bytes

    def collect(self) -> Iterator[Metric]:
        """The Prometheus metrics of the queue, from the load that was read from the database."""
        load = self._load
        yield _gauge("database_up", "1 when the database answered in time.", load is not None)
        if (free := self._free_disk_bytes) is not None:
            yield _gauge("disk_free_bytes", "Free disk space for the embedded server.", free)
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
        backup = load.last_backup_at.timestamp() if load.last_backup_at else 0.0
        yield _gauge("last_backup_timestamp_seconds", "Unix time of the last backup.", backup)


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
        counted = self._counted
        pool = pool_state()
        connections = {"size": pool.size, "in_use": pool.in_use, "overflow": pool.overflow}
        yield _gauges("pool_connections", "Database connections.", "kind", connections)
        lag = {"last": counted.loop_lag_seconds, "longest": counted.longest_loop_lag_seconds}
        yield _gauges("loop_lag_seconds", "Event loop lag.", "kind", lag)
        beat = counted.heartbeat_timestamp()
        yield _gauge("heartbeat_timestamp_seconds", "Unix time of the last heartbeat.", beat)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"siteatlas_{name}", text, value)


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"siteatlas_{name}", text, labels=[label])
    for label_value, value in values.items():
        family.add_metric([label_value], value)
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"siteatlas_{name}", text, value)


def _counters(
    name: str, text: str, label: str, labels: Iterable[str], counts: Mapping[str, float]
) -> Metric:
    family = CounterMetricFamily(f"siteatlas_{name}", text, labels=[label])
    for label_value in labels:
        family.add_metric([label_value], counts[label_value])
    return family


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """Jobs by status, the age of the oldest one that could run now, and the living workers.

    A watched site is overdue when its time has come and no scan of it was queued. `feed` is the
    state of the change feed, `webhooks` that of the endpoints that are told of it,
    `database_bytes` the disk space of the database.
    """

    jobs: dict[str, int]
    oldest_pending_seconds: float
    workers: int
    domains_overdue: int
    oldest_overdue_seconds: float
    feed: FeedLoad
    webhooks: WebhookLoad
    database_bytes: int
    last_backup_at: datetime | None = None


class EndedJobs:
    """Ended jobs by status. Large numbers are counted once a minute: that reads most of the table.

    Smaller ones are always counted, because people compare them with the jobs that they see.
    """

    def __init__(self, large: int = 10_000) -> None:
        self._large = large
        self._counts: dict[str, int] = {}
        self._good_until = 0.0

    async def count(self, session: AsyncSession) -> dict[str, int]:
        """The counts; one that is large is at most a minute old."""
        if time.monotonic() >= self._good_until:
            self._counts, self._good_until = {}, time.monotonic() + 60.0
        unknown = [s for s in FINAL_STATUSES if self._counts.get(s.value, 0) < self._large]
        if unknown:
            self._counts |= await _count(session, unknown)
        return self._counts


async def queue_load(session: AsyncSession, ended: EndedJobs) -> QueueLoad:
    """The load at this moment, by the clock of the database."""
    overdue, oldest_overdue = await _overdue_domains(session)
    return QueueLoad(
        jobs=await _count(session, ACTIVE_STATUSES) | await ended.count(session),
        oldest_pending_seconds=await oldest_pending_seconds(session),
        workers=await _living_workers(session),
        domains_overdue=overdue,
        oldest_overdue_seconds=oldest_overdue,
        feed=await feed_load(session),
        webhooks=await webhook_load(session),
        database_bytes=int(await session.scalar(select(database_size)) or 0),
        last_backup_at=await last_backup_at(session),
    )


async def count_waiting(session: AsyncSession) -> int:
    """How many jobs wait, for a worker or for their time."""
    return (await _count(session, [JobStatus.PENDING]))[JobStatus.PENDING.value]


async def _count(session: AsyncSession, statuses: Iterable[JobStatus]) -> dict[str, int]:
    """One count per status, each through the index that this status has."""
    counts = (
        select(func.count())
        .select_from(Job)
        .where(Job.status == status, Job.job_type == SITEMAP_JOB)
        .scalar_subquery()
        for status in statuses
    )
    numbers = (await session.execute(select(*counts))).one()
    return {status.value: number for status, number in zip(statuses, numbers, strict=True)}


async def oldest_pending_at(session: AsyncSession) -> datetime | None:
    """Since when the first job that could run now has been waiting; None without such a job."""
    first = first_jobs().c.run_at
    due: datetime | None = await session.scalar(select(func.min(first)).where(first <= func.now()))
    return due


async def oldest_pending_seconds(session: AsyncSession) -> float:
    """Age of the oldest job that is ready to run; one index probe per user and priority."""
    first = first_jobs().c.run_at
    age = extract("epoch", func.now() - func.min(first)).cast(Float)
    seconds = await session.scalar(select(age))
    return max(0.0, float(seconds or 0.0))


async def _overdue_domains(session: AsyncSession) -> tuple[int, float]:
    age = extract("epoch", func.now() - func.min(Domain.next_scan_at)).cast(Float)
    statement = select(func.count(), age).where(*SCHEDULED, Domain.next_scan_at < func.now())
    count, seconds = (await session.execute(statement)).one()
    return count, float(seconds or 0.0)


async def _living_workers(session: AsyncSession) -> int:
    since = func.now() - timedelta(seconds=ALIVE_SECONDS)
    alive = (Worker.last_seen_at > since, Worker.slots > 0)
    counted = select(func.count()).select_from(Worker).where(*alive)
    return int(await session.scalar(counted) or 0)
