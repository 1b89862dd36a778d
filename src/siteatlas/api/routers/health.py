"""Health checks and metrics of the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Response

from siteatlas import __version__
from siteatlas.access.limits import PUBLIC, READ
from siteatlas.api.context import Context
from siteatlas.api.openapi import problems
from siteatlas.catalog.views import Example, Seconds, View, Word
from siteatlas.errors import DatabaseError, DatabaseFull, DatabaseReadOnly, SchedulerEnded
from siteatlas.meters import meters
from siteatlas.queue.metrics import MEDIA_TYPE, PoolView, process_metrics, queue_metrics
from siteatlas.storage.schema import check_revision
from siteatlas.storage.startup import free_disk_bytes

MAX_METRICS_CHARS = 200_000

router = APIRouter(tags=["operations"])


@dataclass(frozen=True, slots=True)
class HealthAnswer(View):
    """The process responds; nothing else was checked."""

    status: Annotated[Literal["ok"], Example("ok")]
    version: Annotated[Word, Example("0.1.0")]
    loop_lag_seconds: Annotated[Seconds, Example(0.0004)]


@dataclass(frozen=True, slots=True)
class DatabaseHealthAnswer(View):
    """The database responds and has the schema that this version needs."""

    status: Annotated[Literal["ok"], Example("ok")]
    server_version: Annotated[Word, Example("18.1")]
    schema_revision: Annotated[Word | None, Example("0001")]
    needed_revision: Annotated[Word, Example("0001")]
    latency_ms: Annotated[Seconds, Example(0.6)]
    pool: Annotated[PoolView, Example({"size": 10, "in_use": 1, "overflow": 0})]


@router.get(
    "/metrics",
    dependencies=[READ],
    summary="Get metrics for Prometheus",
    response_class=Response,
    responses={
        200: {
            "description": "Metrics in the Prometheus text format.",
            "content": {
                "text/plain": {"schema": {"type": "string", "maxLength": MAX_METRICS_CHARS}}
            },
        },
        **problems(),
    },
)
async def get_metrics(context: Context) -> Response:
    """Metrics of the queue and of this process.

    Without a database, only `siteatlas_database_up` and the metrics of the process.
    """
    try:
        load = await context.queue_load.run()
    except DatabaseError:
        load = None
    page = queue_metrics(load, free_disk_bytes(context.settings)) + process_metrics(__version__)
    return Response(page, media_type=MEDIA_TYPE)


@router.get("/health", dependencies=[PUBLIC], summary="Check the process", responses=problems())
async def get_health(context: Context) -> HealthAnswer:
    """Report that the process is responding, and the lag of its event loop.

    The database is not contacted. Returns 503 if the scheduler of this process has stopped or
    hangs; only a restart helps then.
    """
    if context.scheduler_has_ended:
        raise SchedulerEnded
    lag = round(meters.loop_lag_seconds, 4)
    return HealthAnswer(status="ok", version=__version__, loop_lag_seconds=lag)


@router.get(
    "/health/database", dependencies=[READ], summary="Check the database", responses=problems()
)
async def get_database_health(context: Context) -> DatabaseHealthAnswer:
    """Check that the database responds within three seconds, is writable and has the schema that
    this version needs. Returns 503 with the reason otherwise, and for a minute after its disk was
    full (`database_full`).
    """
    state = await context.database_state.run()
    if state.is_read_only:
        raise DatabaseReadOnly
    if meters.clock() < meters.disk_full_until:
        raise DatabaseFull
    if state.schema_revision != state.needed_revision:
        check_revision(state.schema_revision)
    return DatabaseHealthAnswer(
        status="ok",
        server_version=state.server_version,
        schema_revision=state.schema_revision,
        needed_revision=state.needed_revision,
        latency_ms=state.latency_ms,
        pool=state.pool,
    )
