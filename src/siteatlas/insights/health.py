"""The state of the database, for operators."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from sqlalchemy import column, func, select, table
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.pool import QueuePool

from siteatlas.errors import DatabaseUnavailable
from siteatlas.storage.schema import needed_revision
from siteatlas.storage.session import bound_database


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
