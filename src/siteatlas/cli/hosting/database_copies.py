"""Backs up and restores the database of a command; `storage.backup` owns the contents."""

from __future__ import annotations

from pathlib import Path

from siteatlas.access.command_audit import record_command
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.output import print_message
from siteatlas.errors import DatabaseError
from siteatlas.queue.restored_jobs import refuse_while_workers_run, requeue_restored_jobs
from siteatlas.settings import Settings
from siteatlas.storage.backup.archive import ArchiveReader
from siteatlas.storage.backup.files import STANDARD_STREAM, backup_source, backup_target
from siteatlas.storage.backup.restoring import restore_backup
from siteatlas.storage.backup.writing import write_backup
from siteatlas.storage.session import AsyncConnection, get_session
from siteatlas.storage.startup import open_storage


async def backup_database(settings: Settings, file: str) -> dict[str, int]:
    """Back up for `siteatlas db backup`; returns the number of rows by table.

    It is recorded before it is written, so that nothing is copied without a trace.
    """
    async with opened(settings) as database:
        with backup_target(file) as target:
            await _record_backup(_file_name(file))
            return await write_backup(database, target)


async def _record_backup(name: str | None) -> None:
    """Add an audit event, or say that there is none: a read-only database can be backed up too."""
    try:
        async with get_session() as session, session.begin():
            await record_command(session, "db backup", name)
    except DatabaseError as error:
        print_message(f"The backup is not recorded in the audit trail. {error.message}")


def _file_name(file: str) -> str | None:
    """The name of a backup in the audit trail; None for a standard stream."""
    return None if file == STANDARD_STREAM else Path(file).name


async def restore_database(settings: Settings, file: str, *, replace: bool) -> dict[str, int]:
    """Restore for `siteatlas db restore`; returns the number of rows by table."""

    async def finish(connection: AsyncConnection) -> None:
        """Requeue running jobs, and leave a trace of the restore."""
        await requeue_restored_jobs(connection)
        await record_command(connection, "db restore", _file_name(file))

    with backup_source(file) as source:
        reader = ArchiveReader(source)
        async with open_storage(settings, announce=print_message, check_schema=False) as database:
            return await restore_backup(
                database, reader, replace=replace, check=refuse_while_workers_run, finish=finish
            )
