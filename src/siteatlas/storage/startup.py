"""Opens the database of a process, configured or embedded, and closes it cleanly.

A server that is starting, recovering or out of connections is waited for; one that refuses is not.
The embedded server is restarted if it died, by any process that uses it.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Float, Identity, cast, column, extract, func, select, table
from sqlalchemy.dialects.postgresql import REGCLASS
from sqlalchemy.ext.asyncio import AsyncConnection

from siteatlas.aio import background_task
from siteatlas.errors import (
    DatabaseConnectionsExhausted,
    DatabaseUnavailable,
    EmbeddedServerError,
    EmbeddedServerUnavailable,
)
from siteatlas.logs import get_logger
from siteatlas.settings import Settings, load_settings
from siteatlas.storage.backup import next_identity
from siteatlas.storage.embedded.server import EmbeddedServer, announce_to_log
from siteatlas.storage.engine import located_faults, reason_of, server_of, translated_faults
from siteatlas.storage.models import Base
from siteatlas.storage.schema import JOBS, read_revision, require_schema, upgrade_schema
from siteatlas.storage.session import REQUEST_LIMITS, Database, bind_database, create_database

LOOK_SECONDS = 2.0
database_size = func.pg_database_size(func.current_database())

log = get_logger("storage")


@asynccontextmanager
async def open_storage(
    settings: Settings | None = None,
    *,
    announce: Callable[[str], None] | None = None,
    check_schema: bool = True,
    go_on_waiting: Callable[[], bool] | None = None,
    usual_limits: Mapping[str, str] = REQUEST_LIMITS,
) -> AsyncIterator[Database]:
    """Bind the configured database, or the embedded one, to this process.

    Without `settings` they are read here; without `announce` a start of the embedded server is
    only logged. The embedded server's schema is brought up to date; elsewhere an outdated one is
    refused. With `go_on_waiting`, wait for a database that does not respond yet while it returns
    true, up to the time in the settings. `usual_limits` are those of most transactions.
    """
    settings = settings or load_settings().settings
    if settings.database_url is None:
        async with _embedded_database(
            settings, announce or announce_to_log, go_on_waiting, usual_limits
        ) as database:
            yield database
        return
    url = settings.database_url.get_secret_value()
    wait = DatabaseWait(server_of(url), settings.database_wait_seconds if go_on_waiting else 0)
    with located_faults(url):
        async with _open_database(settings, url, True, usual_limits) as database:
            if check_schema:
                await wait.until_answered(lambda: require_schema(database.engine), go_on_waiting)
            yield database


@asynccontextmanager
async def _embedded_database(
    settings: Settings,
    announce: Callable[[str], None],
    go_on_waiting: Callable[[], bool] | None,
    usual_limits: Mapping[str, str],
) -> AsyncIterator[Database]:
    server = EmbeddedServer(settings.data_dir, announce=announce, user_name=settings.server_user)
    wait = DatabaseWait(str(server.data_dir), settings.database_wait_seconds)
    try:
        url = await asyncio.to_thread(server.acquire)
        async with (
            _open_database(settings, url, False, usual_limits) as database,
            background_task(_revive_when_dead(server), essential=True),
        ):
            await wait.until_answered(lambda: upgrade_schema(database.engine), go_on_waiting)
            yield database
    except DatabaseUnavailable as error:
        if type(error) is not DatabaseUnavailable:
            raise
        raise EmbeddedServerUnavailable(
            f"The embedded PostgreSQL in {server.data_dir} does not respond: {reason_of(error)}."
        ) from error
    finally:
        await asyncio.to_thread(server.release)


class DatabaseWait:
    """A limited wait for a database that does not respond yet, with a log message at intervals."""

    def __init__(self, where: str, seconds: float) -> None:
        self._where = where
        self._began = time.monotonic()
        self._seconds = seconds
        self._next_message = 0.0
        self._pause = 1.0

    async def until_answered(
        self, ask: Callable[[], Awaitable[None]], go_on: Callable[[], bool] | None
    ) -> None:
        """Try until the server responds or refuses; raise the last error at the deadline."""
        while True:
            try:
                return await ask()
            except DatabaseUnavailable as error:
                # Starting, recovering or out of connections; a refusal would be permanent.
                if (
                    type(error) not in {DatabaseUnavailable, DatabaseConnectionsExhausted}
                    or self._is_over()
                    or not (go_on is None or go_on())
                ):
                    raise
                self._log(error)
            await asyncio.sleep(self._pause)

    def _is_over(self) -> bool:
        """Whether the database must respond now: there is no time for another attempt."""
        return time.monotonic() - self._began + self._pause > self._seconds

    def _log(self, error: DatabaseUnavailable) -> None:
        waited = time.monotonic() - self._began
        if waited >= self._next_message:
            self._next_message = waited + 5.0
            log.warning("waiting_for_database", database=self._where, reason=reason_of(error))


async def _revive_when_dead(server: EmbeddedServer) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            if await asyncio.to_thread(server.revive):
                log.warning("embedded_server_restarted")
        except EmbeddedServerError as error:
            log.warning("embedded_server_lost", reason=error.message)
            await asyncio.sleep(30.0)


@asynccontextmanager
async def _open_database(
    settings: Settings, url: str, behind_pooler: bool, usual_limits: Mapping[str, str]
) -> AsyncIterator[Database]:
    database = create_database(
        url,
        pool_size=settings.pool_size,
        pool_overflow=settings.pool_overflow,
        behind_pooler=behind_pooler,
        usual_limits=usual_limits,
    )
    bind_database(database)
    try:
        yield database
    finally:
        bind_database(None)
        await database.close()


def free_disk_bytes(settings: Settings) -> int | None:
    """The free space for the embedded server; None if the database has its own server."""
    if settings.database_url is not None:
        return None
    place = settings.data_dir.expanduser()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


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


@dataclass(frozen=True, slots=True)
class TakenId:
    """A table whose sequence gives ids that are taken, so that new rows are refused."""

    table: str
    column: str
    greatest: int


async def find_taken_ids(database: Database) -> list[TakenId]:
    """The tables whose sequence is behind the greatest id, as after a restore that went wrong."""
    found = []
    with translated_faults():
        async with database.engine.connect() as connection:
            for own in Base.metadata.sorted_tables:
                for one in own.columns:
                    if isinstance(one.server_default, Identity):
                        following = await next_identity(connection, own.name, one.name)
                        greatest = await connection.scalar(select(func.max(one))) or 0
                        if following is not None and following <= greatest:
                            found.append(TakenId(own.name, one.name, int(greatest)))
    return found


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
