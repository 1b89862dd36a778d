"""The version of the schema: what the database has, what this code needs, and how to get there."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from siteatlas.errors import SchemaOutdated
from siteatlas.storage.faults import translated_faults

MIGRATIONS = Path(__file__).parent / "migrations"
UPGRADE_LOCK = 0x5173A71A5
LIMITS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
BASE = "base"


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def needed_revision() -> str:
    """The revision that this version of the code works with."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def _migrate(connection: Connection, revision: str) -> None:
    """Run all steps in one transaction, behind a lock: several processes may start at once.

    It may take its time; the limits of requests, which stand on a direct connection, do not hold.
    """
    connection.execute(select(*(func.set_config(name, "0", True) for name in LIMITS)))
    connection.execute(select(func.pg_advisory_xact_lock(UPGRADE_LOCK)))
    config = _config()
    config.attributes["connection"] = connection
    if revision == BASE:
        command.downgrade(config, revision)
    else:
        command.upgrade(config, revision)


async def upgrade_schema(engine: AsyncEngine, revision: str | None = None) -> None:
    """Bring the database to the revision that this code needs; tests name an earlier one."""
    with translated_faults():
        async with engine.begin() as connection:
            await connection.run_sync(_migrate, revision or needed_revision())


async def downgrade_schema(engine: AsyncEngine) -> None:
    """Take every table away again. For tests of the migrations."""
    with translated_faults():
        async with engine.begin() as connection:
            await connection.run_sync(_migrate, BASE)


async def current_revision(engine: AsyncEngine) -> str | None:
    """The revision that the database has; None when it has no schema of ours."""

    def read(connection: Connection) -> str | None:
        return MigrationContext.configure(connection).get_current_revision()

    with translated_faults():
        async with engine.connect() as connection:
            return await connection.run_sync(read)


async def require_schema(engine: AsyncEngine) -> None:
    """Raise SchemaOutdated unless the database is exactly at the needed revision."""
    current, needed = await current_revision(engine), needed_revision()
    if current != needed:
        raise SchemaOutdated(
            f"The database schema is at {current or 'nothing'}, this version needs {needed}. "
            "Run: siteatlas db upgrade"
        )
