"""Metrics for Prometheus: the queue as the database sees it, and this process.

The series of the process come from one registry. Those of the queue need a query, so they are
collected from its result, one `QueueCollector` per scrape. Label sets are fixed and every series
is there from the first scrape on; only those of HTTP requests appear with the first request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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
    ColumnElement,
    Float,
    cast,
    column,
    extract,
    func,
    select,
    table,
)
from sqlalchemy.dialects.postgresql import REGCLASS
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.pool import QueuePool

from siteatlas.errors import DatabaseUnavailable
from siteatlas.meters import Meters, meters
from siteatlas.queue.fence import FINAL_STATUSES
from siteatlas.queue.views import QueueLoad, database_size
from siteatlas.scanner.events import DocumentOutcome, UnchangedBy
from siteatlas.storage.engine import translated_faults
from siteatlas.storage.models import ChangeKind
from siteatlas.storage.schema import JOBS, needed_revision, read_revision
from siteatlas.storage.session import Database, bound_database


@dataclass(frozen=True, slots=True)
class PoolState:
    """Connections of this process: kept, lent out, and opened beyond the kept ones."""

    size: int
    in_use: int
    overflow: int


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """Version, schema and speed of the answer, and whether anything can be written."""

    server_version: str
    is_read_only: bool
    schema_revision: str | None
    needed_revision: str
    latency_ms: float
    pool: PoolState


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


def pool_state() -> PoolState:
    """Insight into the connection pools for `/health` and metrics; zeros if there is none."""
    try:
        engines = bound_database().engines
    except DatabaseUnavailable:
        engines = ()
    pools = [engine.pool for engine in engines if isinstance(engine.pool, QueuePool)]
    return PoolState(
        size=sum(pool.size() for pool in pools),
        in_use=sum(pool.checkedout() for pool in pools),
        overflow=sum(max(0, pool.overflow()) for pool in pools),
    )


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
class ServerSetup:
    """What the server says of itself. `clock_ahead_seconds`: of the clock of this process."""

    version: str
    version_number: int
    revision: str | None
    latency_seconds: float
    clock_ahead_seconds: float
    is_read_only: bool
    database_bytes: int
    max_connections: int


@dataclass(frozen=True, slots=True)
class RolePrivileges:
    """What the role of this process may do with our tables."""

    role: str
    can_write: bool
    is_owner: bool


async def server_setup(database: Database) -> ServerSetup:
    """Read the version, the schema revision, the clock and the size of the database."""
    with translated_faults():
        async with database.engine.connect() as connection:
            revision = await connection.run_sync(read_revision)
            began, sent = time.perf_counter(), time.time()
            moment = cast(extract("epoch", func.clock_timestamp()), Float)
            names = ("server_version", "server_version_num", "transaction_read_only")
            settings = [func.current_setting(name) for name in (*names, "max_connections")]
            row = (await connection.execute(select(moment, database_size, *settings))).one()
            latency = time.perf_counter() - began
    return ServerSetup(
        version=str(row[2]),
        version_number=int(row[3]),
        revision=revision,
        latency_seconds=latency,
        clock_ahead_seconds=float(row[0]) - (sent + latency / 2),
        is_read_only=row[4] == "on",
        database_bytes=int(row[1]),
        max_connections=int(row[5]),
    )


async def role_privileges(database: Database) -> RolePrivileges:
    """Whether the role may write to our tables, and whether it owns them, as migrations need."""
    writing = [
        func.has_table_privilege(JOBS.name, privilege)
        for privilege in ("SELECT", "INSERT", "UPDATE", "DELETE")
    ]
    owner = func.pg_get_userbyid(_owner_of_jobs())
    statement = select(func.current_user(), func.pg_has_role(owner, "USAGE"), *writing)
    with translated_faults():
        async with database.engine.connect() as connection:
            role, is_owner, *allowed = (await connection.execute(statement)).one()
    return RolePrivileges(str(role), can_write=all(allowed), is_owner=bool(is_owner))


def _owner_of_jobs() -> ColumnElement[int]:
    relations = table("pg_class", column("oid"), column("relowner"))
    return (
        select(relations.c.relowner)
        .where(relations.c.oid == cast(JOBS.name, REGCLASS))
        .scalar_subquery()
    )


async def is_pooled(database: Database) -> bool:
    """Whether transactions of one connection run on several of the server: a pooler does that.

    The second connection takes what the first has left, so that a pooler must give it another.
    """
    with translated_faults():
        async with database.engine.connect() as first, database.engine.connect() as second:
            async with first.begin():
                before = await _backend(first)
            await _backend(second)
            try:
                async with asyncio.timeout(3.0):
                    return await _backend(first) != before
            except TimeoutError:
                # The pooler has only one connection, which the second transaction holds.
                await first.invalidate()
                return True


async def _backend(connection: AsyncConnection) -> int:
    return int(await connection.scalar(select(func.pg_backend_pid())) or 0)
