"""Sessions of the bound database: their limits, transactions and faults."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Integer, Text, func, literal_column, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import DatabaseRightsMissing, DatabaseTimeout, DatabaseUnavailable
from siteatlas.storage.models import LOCAL_USER_ID, Domain
from siteatlas.storage.session import (
    BACKGROUND_LIMITS,
    REQUEST_LIMITS,
    Database,
    Reader,
    bind_database,
    create_database,
    execute_autocommit,
    get_autocommit_session,
    get_background_session,
    get_session,
)
from tests.fixtures.connections import CountedConnections, driver_connection
from tests.fixtures.records import add_domain

ONE = select(literal_column("1", Integer))


async def limits_of(session: AsyncSession) -> dict[str, str]:
    names = list(BACKGROUND_LIMITS)
    found = (await session.execute(select(*map(func.current_setting, names)))).one()
    return dict(zip(names, found, strict=True))


async def names_of_domains() -> list[str]:
    async with get_background_session() as session, session.begin():
        return list(await session.scalars(select(Domain.domain).order_by(Domain.domain)))


async def change_all_and_fail() -> None:
    async with get_background_session() as session, session.begin():
        await add_domain(session, "lost.example.com")
        await session.execute(update(Domain).values(domain=Domain.domain + ".changed"))
        raise ZeroDivisionError


async def end_own_connection(session: AsyncSession) -> None:
    await session.execute(select(func.pg_terminate_backend(func.pg_backend_pid())))


@pytest.mark.criterion("background-sessions")
@pytest.mark.usefixtures("database")
async def test_every_session_is_a_new_one() -> None:
    async with get_session() as first, get_session() as second, get_background_session() as third:
        assert len({id(first), id(second), id(third)}) == 3
        assert [await session.scalar(ONE) for session in (first, second, third)] == [1, 1, 1]


@pytest.mark.criterion("background-sessions")
async def test_without_a_bound_database_there_is_no_session() -> None:
    bind_database(None)
    with pytest.raises(DatabaseUnavailable):
        async with get_session():
            pass


@pytest.mark.criterion("transaction-boundaries")
@pytest.mark.usefixtures("database")
async def test_every_transaction_of_a_session_has_the_limits() -> None:
    async with get_background_session() as session:
        for _ in range(2):
            async with session.begin():
                assert await limits_of(session) == BACKGROUND_LIMITS


@pytest.mark.usefixtures("database")
async def test_limits_are_sent_together_with_the_beginning_of_a_transaction() -> None:
    commands: list[str] = []
    async with get_background_session() as session, session.begin():
        driver = await driver_connection(session)
        driver.add_query_logger(lambda record: commands.append(record.query))
    async with get_background_session() as session, session.begin():
        assert await limits_of(session) == BACKGROUND_LIMITS
    begin, commit = commands
    assert begin.startswith("BEGIN; SET LOCAL ")
    assert commit == "COMMIT;"


async def test_limits_of_a_transaction_without_statements_are_dropped(database: Database) -> None:
    async with get_background_session(durable=False) as session, session.begin():
        await session.connection()
    async with database.engine.connect() as connection:
        found = await connection.scalar(select(func.current_setting("synchronous_commit")))
    assert found == "on"


@pytest.mark.usefixtures("database")
async def test_a_request_has_tighter_limits() -> None:
    async with get_session() as session, session.begin():
        assert await limits_of(session) == REQUEST_LIMITS


@pytest.mark.usefixtures("database")
async def test_a_transaction_after_a_failed_one_has_the_limits() -> None:
    async with get_background_session() as session:
        with pytest.raises(DBAPIError):
            async with session.begin():
                await session.execute(select(literal_column("1 / 0")))
        async with session.begin():
            assert await limits_of(session) == BACKGROUND_LIMITS


@pytest.mark.criterion("transaction-boundaries")
async def test_limits_end_with_the_transaction(database: Database) -> None:
    async def settings() -> tuple[str, ...]:
        names = ["statement_timeout", "lock_timeout", "synchronous_commit"]
        async with database.engine.connect() as connection:
            return tuple(
                (await connection.execute(select(*map(func.current_setting, names)))).one()
            )

    before = await settings()
    async with get_background_session(durable=False) as session, session.begin():
        await session.execute(ONE)
    assert await settings() == before
    assert before[-1] == "on"


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(("durable", "expected"), [(True, "on"), (False, "off")])
async def test_a_commit_waits_for_the_disk_only_when_it_must_last(
    durable: bool, expected: str
) -> None:
    async with get_background_session(durable=durable) as session, session.begin():
        found = await session.scalar(select(func.current_setting("synchronous_commit")))
    assert found == expected


@pytest.mark.usefixtures("database")
async def test_a_statement_over_its_limit_is_ended_and_the_database_still_counts_as_there() -> None:
    with pytest.raises(DatabaseTimeout):
        async with get_background_session(statement_seconds=1) as session, session.begin():
            await session.execute(select(func.pg_sleep(30)))


async def make_table_as_a_stranger() -> None:
    async with get_session() as session, session.begin():
        await session.execute(text("SET LOCAL ROLE pg_monitor"))
        await session.execute(text("CREATE TABLE refused (id integer)"))


@pytest.mark.usefixtures("database")
async def test_a_role_without_rights_gets_an_error_that_says_so() -> None:
    with pytest.raises(DatabaseRightsMissing):
        await make_table_as_a_stranger()


@pytest.mark.criterion("transaction-boundaries")
@pytest.mark.usefixtures("database")
async def test_the_end_of_a_transaction_commits_it() -> None:
    async with get_background_session() as session, session.begin():
        await add_domain(session, "kept.example.com")
    assert await names_of_domains() == ["kept.example.com"]


@pytest.mark.criterion("background-sessions", "transaction-boundaries")
@pytest.mark.usefixtures("database")
async def test_an_exception_in_a_transaction_rolls_all_of_it_back() -> None:
    async with get_background_session() as session, session.begin():
        await add_domain(session, "kept.example.com")
    with pytest.raises(ZeroDivisionError):
        await change_all_and_fail()
    assert await names_of_domains() == ["kept.example.com"]


@pytest.mark.criterion("no-session-errors")
@pytest.mark.usefixtures("database")
async def test_a_session_without_a_transaction_keeps_nothing() -> None:
    async with get_background_session() as session:
        await add_domain(session, "lost.example.com")
    assert await names_of_domains() == []


@pytest.mark.usefixtures("database")
async def test_a_single_write_is_committed_without_a_transaction_of_the_caller() -> None:
    added = insert(Domain).values(
        domain="kept.example.com", base_url="kept.example.com", created_by=LOCAL_USER_ID
    )
    row = await execute_autocommit(select(added.returning(Domain.domain).cte()), {})
    assert row.domain == "kept.example.com"
    assert await names_of_domains() == ["kept.example.com"]


async def own_limits(session: Reader) -> dict[str, str]:
    return {
        name: str(await session.scalar(select(func.current_setting(name))))
        for name in REQUEST_LIMITS
    }


@pytest.mark.usefixtures("database")
async def test_every_statement_of_an_autocommit_session_has_the_limits_of_a_request() -> None:
    async with get_autocommit_session() as session:
        assert await own_limits(session) == REQUEST_LIMITS
        assert await own_limits(session) == REQUEST_LIMITS


@pytest.mark.usefixtures("database")
async def test_each_statement_of_an_autocommit_session_is_a_transaction_of_its_own() -> None:
    number = select(func.pg_current_xact_id().cast(Text))
    async with get_autocommit_session() as session:
        assert await session.scalar(number) != await session.scalar(number)


@pytest.mark.usefixtures("database")
async def test_an_autocommit_session_goes_on_after_a_statement_that_failed() -> None:
    async with get_autocommit_session() as session:
        with pytest.raises(DBAPIError):
            await session.execute(select(literal_column("1 / 0")))
        assert await session.scalar(ONE) == 1


async def test_an_autocommit_session_holds_no_connection_between_its_statements(
    database: Database,
) -> None:
    counted = CountedConnections(database)
    async with get_autocommit_session() as session:
        await session.execute(ONE)
        assert (counted.peak, counted.checked_out) == (1, 0)


@pytest.mark.usefixtures("database")
async def test_an_autocommit_session_to_a_server_that_is_away_is_an_unavailable_database() -> None:
    with pytest.raises(DatabaseUnavailable):
        async with get_autocommit_session() as session:
            await session.execute(select(func.pg_terminate_backend(func.pg_backend_pid())))


@pytest.mark.usefixtures("database")
async def test_after_an_autocommit_session_transactions_are_whole_again() -> None:
    async with get_autocommit_session() as session:
        await session.execute(ONE)
    with pytest.raises(ZeroDivisionError):
        await change_all_and_fail()
    assert await names_of_domains() == []


@pytest.mark.criterion("no-session-errors")
@pytest.mark.usefixtures("database")
async def test_attributes_are_readable_after_the_commit() -> None:
    async with get_background_session() as session:
        async with session.begin():
            domain = await add_domain(session, "example.com")
        assert not session.in_transaction()
        assert domain.domain == "example.com"
    assert domain.created_at is not None


async def test_a_server_that_is_not_there_is_an_unavailable_database(tmp_path: Path) -> None:
    database = create_database(f"postgresql://siteatlas@/siteatlas?host={tmp_path}")
    with pytest.raises(DatabaseUnavailable):
        async with database.session(REQUEST_LIMITS) as session, session.begin():
            await session.execute(ONE)
    await database.close()


@pytest.mark.criterion("transaction-boundaries")
@pytest.mark.usefixtures("database")
async def test_a_connection_that_is_cut_is_an_unavailable_database() -> None:
    with pytest.raises(DatabaseUnavailable):
        async with get_background_session() as session, session.begin():
            await end_own_connection(session)


@pytest.mark.criterion("recovery")
@pytest.mark.usefixtures("database")
async def test_the_next_session_works_when_a_connection_was_cut() -> None:
    with pytest.raises(DatabaseUnavailable):
        async with get_background_session() as session, session.begin():
            await end_own_connection(session)
    assert await names_of_domains() == []
