"""Restores a backup in one transaction: either all of it is there afterwards, or nothing changed.

Tables are made in the schema that the backup was written with and then upgraded, so that backups
of earlier versions can be restored. Running jobs are left to `queue.restored_jobs`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
from sqlalchemy import Connection, column, exists, func, inspect, select, table, update
from sqlalchemy.ext.asyncio import AsyncConnection

from siteatlas.errors import BackupInvalid, DatabaseNotEmpty, SchemaNewer, SchemaOutdated
from siteatlas.storage.backup.archive import ArchiveReader, Manifest
from siteatlas.storage.backup.bulk_commands import analyze, copy_in, truncate
from siteatlas.storage.backup.writing import PREPARE, backed_up_tables
from siteatlas.storage.faults import translated_faults
from siteatlas.storage.models import ApiKey, Base, Domain, FeedHead, Job
from siteatlas.storage.schema import (
    BASE,
    UPGRADE_LOCK,
    check_known,
    migrate,
    needed_revision,
    read_revision,
)
from siteatlas.storage.session import Database
from siteatlas.storage.tables import table_of

Step = Callable[[AsyncConnection], Awaitable[None]]
# What the server says about tables, columns and rows that it cannot take.
REFUSED = (
    SchemaOutdated,
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    asyncpg.SyntaxOrAccessError,
)


@dataclass(frozen=True, slots=True)
class Revocation:
    """A key that was revoked in the database that a backup replaces."""

    key_id: str
    revoked_at: Any


async def restore_backup(
    database: Database,
    reader: ArchiveReader,
    *,
    check: Step,
    finish: Step,
    replace: bool = False,
    renew_feed: bool = True,
) -> dict[str, int]:
    """Put the contents of a backup in the place of the database; returns the rows by table.

    `check` runs before any row is deleted, on a database with the current schema; not at all if
    the database has none. `finish` runs on the restored one. With `renew_feed` the feed gets a new
    id: positions of readers from before are refused, because events with the same numbers may mean
    something else now.
    """
    with translated_faults():
        async with database.engine.begin() as connection:
            await connection.execute(PREPARE)
            await connection.execute(select(func.pg_advisory_xact_lock(UPGRADE_LOCK)))
            revocations = await _inspect(connection, check, replace=replace)
            await _make_tables(connection, reader.manifest)
            rows = await _load(connection, reader)
            await connection.run_sync(migrate, needed_revision())
            if renew_feed:
                await connection.execute(update(FeedHead).values(feed_id=func.gen_random_uuid()))
            await _revoke_again(connection, revocations)
            await finish(connection)
            await analyze(connection, [each.name for each in backed_up_tables()])
    return rows


async def _inspect(connection: AsyncConnection, check: Step, *, replace: bool) -> list[Revocation]:
    """Refuse to lose data unasked; returns the keys that must stay revoked.

    An older schema is upgraded first: the queries here and in `check` are for the current one.
    """
    if await connection.run_sync(read_revision) is None:
        return []
    await connection.run_sync(migrate, needed_revision())
    await check(connection)
    if not replace and await _has_data(connection):
        raise DatabaseNotEmpty
    revoked = select(ApiKey.id, ApiKey.revoked_at).where(ApiKey.revoked_at.is_not(None))
    return [Revocation(*row) for row in await connection.execute(revoked)]


async def _has_data(connection: AsyncConnection) -> bool:
    """Whether anybody has used the database."""
    used = [exists().select_from(table_of(model)) for model in (Domain, Job, ApiKey)]
    return any((await connection.execute(select(*used))).one())


async def _make_tables(connection: AsyncConnection, manifest: Manifest) -> None:
    """Make empty tables in the schema of the backup.

    Tables of the same schema are emptied instead, which keeps privileges that others have on them.
    """
    _check_backup_revision(manifest)
    _check_backup_tables(manifest)
    current = await connection.run_sync(read_revision)
    if current != manifest.revision:
        if current is not None:
            await connection.run_sync(migrate, BASE)
        await connection.run_sync(migrate, manifest.revision)
    # Those that a backup leaves out refer to others, and new ones have their first rows.
    await truncate(connection, await connection.run_sync(_our_tables))


def _our_tables(connection: Connection) -> list[str]:
    """The tables of ours that the database has, at whatever revision it is."""
    return sorted(set(Base.metadata.tables) & set(inspect(connection).get_table_names()))


def _check_backup_tables(manifest: Manifest) -> None:
    """Refuse a backup with tables of other programs; no migration has dropped one of ours yet."""
    if not {contents.name for contents in manifest.tables} <= set(Base.metadata.tables):
        raise BackupInvalid


def _check_backup_revision(manifest: Manifest) -> None:
    """Refuse a backup that a newer version wrote."""
    try:
        check_known(manifest.revision)
    except SchemaNewer as error:
        raise SchemaNewer(
            f"The backup was written by Siteatlas {manifest.version}, which is newer than this "
            "version. Restore it with that version."
        ) from error


async def _load(connection: AsyncConnection, reader: ArchiveReader) -> dict[str, int]:
    """Fill the tables; BackupInvalid unless the number of rows is the one that was written."""
    rows = {}
    for contents in reader.manifest.tables:
        name, source = contents.name, reader.rows(contents.name)
        with _refused_rows():
            rows[name] = await copy_in(connection, name, contents.columns, source)
        if contents.identity is not None:
            await _continue_identity(connection, name, *contents.identity)
    if rows != reader.finish():
        raise BackupInvalid
    return rows


@contextmanager
def _refused_rows() -> Iterator[None]:
    """Raise BackupInvalid for contents that the server does not take."""
    try:
        yield
    except REFUSED as error:
        raise BackupInvalid from error


async def _continue_identity(
    connection: AsyncConnection, name: str, of_column: str, last: int
) -> None:
    """Let an identity column go on behind the last value that it took."""
    sequence = await connection.scalar(select(func.pg_get_serial_sequence(name, of_column)))
    if sequence is None:
        raise BackupInvalid
    greatest = select(func.max(column(of_column))).select_from(table(name)).scalar_subquery()
    behind = func.greatest(last, func.coalesce(greatest, 1))
    await connection.execute(select(func.setval(sequence, behind)))


async def _revoke_again(connection: AsyncConnection, revocations: list[Revocation]) -> None:
    """Keep keys revoked that were revoked after the backup was written."""
    for one in revocations:
        still_valid = (ApiKey.id == one.key_id) & ApiKey.revoked_at.is_(None)
        await connection.execute(
            update(ApiKey).where(still_valid).values(revoked_at=one.revoked_at)
        )
