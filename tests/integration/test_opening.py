"""Opening the database of a process: the schema must fit, and nothing is left behind."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import SecretStr
from sqlalchemy import func, select

from siteatlas.errors import DatabaseUnavailable, SchemaOutdated
from siteatlas.settings import Settings
from siteatlas.storage.opening import open_storage
from siteatlas.storage.schema import (
    UPGRADE_LOCK,
    current_revision,
    downgrade_schema,
    upgrade_schema,
)
from siteatlas.storage.session import Database, bound_database


def silent(_message: str) -> None:
    """Nobody listens."""


async def test_a_database_with_the_needed_schema_is_bound_while_it_is_open(
    database_url: str,
) -> None:
    settings = Settings(database_url=SecretStr(database_url))
    async with open_storage(settings, announce=silent) as database:
        assert bound_database() is database
    with pytest.raises(DatabaseUnavailable):
        bound_database()


async def test_an_outdated_schema_is_refused_with_the_command_that_helps(
    database: Database, database_url: str
) -> None:
    await downgrade_schema(database.engine)
    with pytest.raises(SchemaOutdated, match="siteatlas db upgrade"):
        async with open_storage(Settings(database_url=SecretStr(database_url)), announce=silent):
            pytest.fail("the database was opened")


async def test_the_schema_goes_away_and_comes_back(database: Database) -> None:
    await downgrade_schema(database.engine)
    assert await current_revision(database.engine) is None
    await upgrade_schema(database.engine)
    assert await current_revision(database.engine) is not None


async def test_a_schema_is_upgraded_without_the_limits_of_requests(database: Database) -> None:
    async with database.engine.connect() as holder, holder.begin():
        await holder.execute(select(func.pg_advisory_xact_lock(UPGRADE_LOCK)))
        upgrade = asyncio.create_task(upgrade_schema(database.engine))
        done, _ = await asyncio.wait([upgrade], timeout=4)
        assert not done
    await upgrade
