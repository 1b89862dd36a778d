"""Opening the database of a process: the schema must fit, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.engine import make_url

from siteatlas.cli.hosting.workers import work
from siteatlas.errors import (
    DatabaseRefused,
    DatabaseUnavailable,
    SchemaNewer,
    SchemaOutdated,
)
from siteatlas.settings import Secret, Settings
from siteatlas.storage.engine import server_of
from siteatlas.storage.schema import (
    UPGRADE_LOCK,
    current_revision,
    downgrade_schema,
    upgrade_schema,
)
from siteatlas.storage.session import Database, bound_database
from siteatlas.storage.startup import open_storage
from tests.fixtures.proxy import ProxyMode, running_proxy


def silent(_message: str) -> None:
    """Nobody listens."""


async def test_a_database_with_the_needed_schema_is_bound_while_it_is_open(
    database_url: str,
) -> None:
    settings = Settings(database_url=Secret(database_url))
    async with open_storage(settings, announce=silent) as database:
        assert bound_database() is database
    with pytest.raises(DatabaseUnavailable):
        bound_database()


@pytest.mark.criterion("schema-checked")
async def test_an_outdated_schema_is_refused_with_the_command_that_helps(
    database: Database, database_url: str
) -> None:
    await downgrade_schema(database.engine)
    with pytest.raises(SchemaOutdated, match="siteatlas db upgrade"):
        async with open_storage(Settings(database_url=Secret(database_url)), announce=silent):
            pytest.fail("the database was opened")


async def test_a_newer_schema_is_neither_opened_nor_upgraded(
    database: Database, database_url: str
) -> None:
    async with database.engine.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(SchemaNewer, match=r"\b9999\b"):
        async with open_storage(Settings(database_url=Secret(database_url)), announce=silent):
            pytest.fail("the database was opened")
    with pytest.raises(SchemaNewer):
        await upgrade_schema(database.engine)
    assert await current_revision(database.engine) == "9999"


async def test_a_database_that_does_not_answer_yet_is_waited_for(database_url: str) -> None:
    async with running_proxy(database_url) as proxy:
        proxy.set_mode(ProxyMode.REFUSE)
        settings = Settings(database_url=Secret(proxy.url))
        asyncio.get_running_loop().call_later(1.5, proxy.set_mode, ProxyMode.PASS)
        async with open_storage(settings, go_on_waiting=lambda: True) as database:
            assert await current_revision(database.engine) is not None
        assert proxy.accepted > 2


@pytest.mark.parametrize(("seconds", "go_on"), [(60, lambda: False), (0, lambda: True), (60, None)])
async def test_the_wait_ends_when_nobody_wants_it_or_time_is_up(
    database_url: str, seconds: float, go_on: Callable[[], bool] | None
) -> None:
    async with running_proxy(database_url) as proxy:
        proxy.set_mode(ProxyMode.REFUSE)
        settings = Settings(database_url=Secret(proxy.url), database_wait_seconds=seconds)
        with pytest.raises(DatabaseUnavailable, match=server_of(proxy.url)):
            async with open_storage(settings, go_on_waiting=go_on):
                pytest.fail("the database was opened")


async def test_a_database_that_refuses_us_is_not_waited_for(database_url: str) -> None:
    wrong = make_url(database_url).set(database="no_such_database")
    settings = Settings(database_url=Secret(wrong.render_as_string(hide_password=False)))
    async with asyncio.timeout(30):
        with pytest.raises(DatabaseRefused, match='"no_such_database"'):
            async with open_storage(settings, go_on_waiting=lambda: True):
                pytest.fail("the database was opened")


async def test_a_worker_that_is_stopped_while_it_waits_shuts_down_gracefully(
    database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_proxy(database_url) as proxy:
        proxy.set_mode(ProxyMode.REFUSE)
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.5, stop.set)
        async with asyncio.timeout(30):
            await work(Settings(database_url=Secret(proxy.url)), stop, asyncio.Event())
    assert stop.is_set()
    assert proxy.accepted > 0
    assert "Running jobs" not in capsys.readouterr().err
    with pytest.raises(DatabaseUnavailable):
        bound_database()


async def test_the_schema_can_be_downgraded_and_upgraded_again(database: Database) -> None:
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
