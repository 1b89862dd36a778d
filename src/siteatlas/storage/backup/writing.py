"""Writes a backup: all tables as they were at one moment, while the service goes on.

What only running processes need (their registry, logins and limits) is left out.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version
from typing import BinaryIO

from sqlalchemy import Identity, Table, cast, func, select
from sqlalchemy.dialects.postgresql import REGCLASS
from sqlalchemy.ext.asyncio import AsyncConnection

from siteatlas.storage.backup.archive import ArchiveWriter, Manifest, TableContents
from siteatlas.storage.backup.bulk_commands import copy_out
from siteatlas.storage.engine import BACKUP_NAME
from siteatlas.storage.faults import translated_faults
from siteatlas.storage.models import Base
from siteatlas.storage.schema import needed_revision
from siteatlas.storage.session import Database

LEFT_OUT = frozenset({"workers", "rate_limits", "browser_sessions"})
# For this transaction: no limits of time, and values in a form that every server reads alike.
SESSION_SETTINGS = {
    "application_name": BACKUP_NAME,
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
}
PREPARE = select(*(func.set_config(name, value, True) for name, value in SESSION_SETTINGS.items()))


async def write_backup(database: Database, file: BinaryIO) -> dict[str, int]:
    """Write the database to a file; returns the number of rows by table.

    All rows belong to one snapshot, so that nothing is locked for other processes.
    """
    with translated_faults():
        async with database.engine.connect() as plain:
            snapshot = await plain.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
            async with snapshot.begin():
                await snapshot.execute(PREPARE)
                writer = ArchiveWriter(file, await _describe_tables(snapshot))
                for table in backed_up_tables():
                    await _write_table(snapshot, table, writer)
    return writer.finish()


def backed_up_tables() -> list[Table]:
    """The tables of a backup, each behind those that it refers to."""
    return [table for table in Base.metadata.sorted_tables if table.name not in LEFT_OUT]


async def _describe_tables(connection: AsyncConnection) -> Manifest:
    """The manifest of a backup that is about to be written."""
    tables = [
        TableContents(table.name, _stored_columns(table), await _identity(connection, table))
        for table in backed_up_tables()
    ]
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    return Manifest(needed_revision(), version("siteatlas"), moment, tuple(tables))


def _stored_columns(table: Table) -> tuple[str, ...]:
    """The columns of a table whose values are not computed by the server."""
    return tuple(column.name for column in table.columns if column.computed is None)


async def _identity(connection: AsyncConnection, table: Table) -> tuple[str, int] | None:
    """The identity column of a table and the last value that it took; None without one."""
    for column in table.columns:
        if isinstance(column.server_default, Identity):
            sequence = cast(func.pg_get_serial_sequence(table.name, column.name), REGCLASS)
            last = await connection.scalar(select(func.pg_sequence_last_value(sequence)))
            return column.name, int(last or 1)
    return None


async def _write_table(connection: AsyncConnection, table: Table, writer: ArchiveWriter) -> None:
    """Append the rows of one table."""
    rows = writer.table(table.name)
    count = await copy_out(connection, table.name, _stored_columns(table), rows.write)
    rows.flush()
    writer.count(table.name, count)
