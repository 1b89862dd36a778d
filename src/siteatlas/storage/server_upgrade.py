"""Moves the data of the embedded server to the major version that this program brings.

A backup is written with the old programs and restored with the new ones, as between any two
servers. `embedded` runs the servers.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from siteatlas.errors import DatabaseInUse, EmbeddedServerError, InputError
from siteatlas.settings import Settings
from siteatlas.storage.backup import (
    ArchiveReader,
    backup_source,
    backup_target,
    restore_backup,
    write_backup,
)
from siteatlas.storage.embedded.files import (
    MAJOR_VERSION,
    Postmaster,
    Programs,
    directory_faults,
    programs_of_major,
)
from siteatlas.storage.embedded.server import EmbeddedServer, written_major
from siteatlas.storage.schema import upgrade_schema
from siteatlas.storage.session import Database, create_database

Announce = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ServerUpgrade:
    """What an upgrade did: `kept` is the directory with the old data."""

    old_major: str
    new_major: str
    kept: Path
    rows: dict[str, int]


async def upgrade_embedded_server(
    settings: Settings, programs_dir: Path | None, announce: Announce
) -> ServerUpgrade:
    """Convert the data directory.

    If that fails, the backup is deleted and the old data is in its place again, possibly with an
    upgraded schema. Only if another process already uses the new server, the old data stays where
    it was put, and DatabaseInUse names that place.
    """
    data_dir = settings.data_dir.expanduser().resolve()
    old_major = _old_major(settings, data_dir)
    kept = _place_of_old_data(data_dir, old_major)
    programs = programs_of_major(old_major, programs_dir)
    backup = data_dir / f"postgres-{old_major}.backup"
    try:
        announce(f"Backing up the data of PostgreSQL {old_major}")
        await _back_up(settings, announce, programs, backup)
        with _set_aside(data_dir / "postgres", kept):
            announce(f"Restoring it with PostgreSQL {MAJOR_VERSION}")
            rows = await _restore(settings, announce, backup)
    finally:
        backup.unlink(missing_ok=True)
    return ServerUpgrade(old_major, str(MAJOR_VERSION), kept, rows)


def _old_major(settings: Settings, data_dir: Path) -> str:
    if settings.database_url is not None:
        raise InputError("DATABASE_URL is set, but only the embedded server can be upgraded.")
    major = written_major(data_dir)
    if major is None:
        raise InputError(f"There is no database in {data_dir}.")
    if major == str(MAJOR_VERSION):
        raise InputError(f"The database in {data_dir} is one of PostgreSQL {major} already.")
    return major


def _place_of_old_data(data_dir: Path, major: str) -> Path:
    kept = data_dir / f"postgres-{major}"
    if kept.exists():
        raise EmbeddedServerError(f"{kept} exists already. Move it away and try again.")
    return kept


async def _back_up(
    settings: Settings, announce: Announce, programs: Programs, backup: Path
) -> None:
    async with _running(settings, announce, programs) as database:
        await upgrade_schema(database.engine)
        with backup_target(str(backup)) as target:
            await write_backup(database, target)


@contextmanager
def _set_aside(current: Path, kept: Path) -> Iterator[None]:
    """Give the stopped old data directory another name; its own again if the block fails."""
    if _is_running(current):
        raise DatabaseInUse
    with directory_faults(current.parent):
        current.rename(kept)
    try:
        yield
    except BaseException as error:
        _put_back(current, kept, error)
        raise


def _put_back(current: Path, kept: Path, error: BaseException) -> None:
    if _is_running(current):
        raise DatabaseInUse(
            f"The upgrade failed, and other processes already use the new server. The old data is "
            f"in {kept}. Stop all processes, delete {current} and rename {kept} to {current}."
        ) from error
    with directory_faults(current.parent):
        shutil.rmtree(current, ignore_errors=True)
        kept.rename(current)


def _is_running(cluster: Path) -> bool:
    found = Postmaster.of(cluster)
    return found is not None and found.lives


async def _restore(settings: Settings, announce: Announce, backup: Path) -> dict[str, int]:
    """Restore the backup with the current programs; nothing is lost, so the feed goes on."""
    with backup_source(str(backup)) as source:
        reader = ArchiveReader(source)
        async with _running(settings, announce) as database:
            return await restore_backup(
                database, reader, check=_nothing, finish=_nothing, renew_feed=False
            )


async def _nothing(_connection: Any) -> None:
    """No further step."""


@asynccontextmanager
async def _running(
    settings: Settings, announce: Announce, programs: Programs | None = None
) -> AsyncIterator[Database]:
    server = EmbeddedServer(
        settings.data_dir, announce=announce, user_name=settings.server_user, programs=programs
    )
    database = create_database(await asyncio.to_thread(server.acquire), behind_pooler=False)
    try:
        yield database
    finally:
        await database.close()
        await asyncio.to_thread(server.release)
