"""How the database of an installation is set up, for `siteatlas doctor`."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Float, cast, column, extract, func, select, table
from sqlalchemy.dialects.postgresql import REGCLASS
from sqlalchemy.ext.asyncio import AsyncConnection

from siteatlas.insights.queue_load import DATABASE_SIZE
from siteatlas.storage.faults import translated_faults
from siteatlas.storage.schema import read_revision
from siteatlas.storage.session import Database
from siteatlas.storage.tables import JOBS

POOLER_SECONDS = 3.0


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
            row = (await connection.execute(select(moment, DATABASE_SIZE, *settings))).one()
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
    """SQL value: the role that owns the table of jobs."""
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
                async with asyncio.timeout(POOLER_SECONDS):
                    return await _backend(first) != before
            except TimeoutError:
                # The pooler has only one connection, which the second transaction holds.
                await first.invalidate()
                return True


async def _backend(connection: AsyncConnection) -> int:
    """The process of the server that runs the transaction of this connection."""
    return int(await connection.scalar(select(func.pg_backend_pid())) or 0)
