"""Backups of the database of a test, in memory."""

from __future__ import annotations

import io

from sqlalchemy import text

from siteatlas.queue.operator_actions import refuse_while_workers_run, requeue_restored_jobs
from siteatlas.storage.backup import ArchiveReader, backed_up_tables, restore_backup, write_backup
from siteatlas.storage.session import Database
from tests.fixtures.database import transaction


async def backup(database: Database) -> bytes:
    file = io.BytesIO()
    await write_backup(database, file)
    return file.getvalue()


async def restore(database: Database, content: bytes, *, replace: bool = False) -> dict[str, int]:
    return await restore_backup(
        database,
        ArchiveReader(io.BytesIO(content)),
        replace=replace,
        check=refuse_while_workers_run,
        finish=requeue_restored_jobs,
    )


async def rows_by_table() -> dict[str, list[str]]:
    """Every row as text."""
    async with transaction() as session:
        return {
            table.name: sorted(
                str(row[0])
                for row in await session.execute(text(f"SELECT t::text FROM {table.name} t"))
            )
            for table in backed_up_tables()
        }
