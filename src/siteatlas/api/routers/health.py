"""Whether the process is alive, and whether it can use its database."""

from __future__ import annotations

from fastapi import APIRouter

from siteatlas import __version__
from siteatlas.access.marks import PUBLIC, READ
from siteatlas.api.context import Context
from siteatlas.api.openapi import problems
from siteatlas.api.schemas.health import DatabaseHealthAnswer, HealthAnswer, PoolAnswer
from siteatlas.errors import DatabaseReadOnly, SchedulerEnded
from siteatlas.meters import meters
from siteatlas.storage.schema import check_revision

router = APIRouter(tags=["operations"])


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
    this version needs. Returns 503 with the reason otherwise.
    """
    state = await context.database_state.run()
    if state.is_read_only:
        raise DatabaseReadOnly
    if state.schema_revision != state.needed_revision:
        check_revision(state.schema_revision)
    return DatabaseHealthAnswer(
        status="ok",
        server_version=state.server_version,
        schema_revision=state.schema_revision,
        needed_revision=state.needed_revision,
        latency_ms=state.latency_ms,
        pool=PoolAnswer.model_validate(state.pool),
    )
