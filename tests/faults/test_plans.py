"""The statements of the queue use their indexes at any size, and heartbeats touch none."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import event, text

from siteatlas.queue.claims import claim
from siteatlas.queue.fence import heartbeat
from siteatlas.queue.metrics import oldest_pending_seconds
from siteatlas.queue.rescues import rescue
from siteatlas.storage.session import (
    AsyncSession,
    Database,
    bind_database,
    create_database,
    get_background_session,
)

FULL = os.environ.get("SITEATLAS_FAULTS") == "full"
FEW, MANY = 30_000, 1_000_000 if FULL else 30_000
LIMIT = 20
LEASE = 60.0
# One in ten waits, a few hundred run, the others have ended.
MANY_JOBS = """
    INSERT INTO jobs (created_by, dedup_key, status, priority, run_at, fence, attempt, worker_id,
    lease_until, result_data)
    SELECT u.id, CASE WHEN n % 10 = 0 OR n % 3000 = 1 THEN 'site-' || n END,
    CASE WHEN n % 10 = 0 THEN 'pending' WHEN n % 3000 = 1 THEN 'processing' ELSE 'completed' END,
    n % 3 * 4, now() - n * interval '1 second', 1, 1, 'one',
    CASE WHEN n % 3000 = 1 THEN now() + interval '1 hour' END, '{"domain": "example.com"}'
    FROM generate_series(1, :jobs) n, (SELECT id FROM users ORDER BY id LIMIT 1) u
"""
# The planner reads a table of a few rows whole, whatever its indexes.
MANY_DOMAINS = """
    INSERT INTO domains (id, domain, base_url, created_by)
    SELECT gen_random_uuid(), 'site-' || n || '.example', 'https://site-' || n || '.example/', u.id
    FROM generate_series(1, 10000) n, (SELECT id FROM users ORDER BY id LIMIT 1) u
"""
USERS = 200
MANY_USERS = f"""
    WITH someone AS (
        INSERT INTO users (id, name) SELECT gen_random_uuid(), 'user-' || n
        FROM generate_series(1, {USERS}) n RETURNING id, name
    )
    INSERT INTO jobs (created_by, dedup_key, result_data)
    SELECT id, name, '{{}}' FROM someone
"""
PREPARED_CLAIMS = """
    SELECT generic_plans, custom_plans FROM pg_prepared_statements
    WHERE statement LIKE 'WITH RECURSIVE%UPDATE jobs%'
"""
pytestmark = [pytest.mark.faults_short, pytest.mark.timeout(600)]
Work = Callable[[AsyncSession], Awaitable[Any]]


@pytest_asyncio.fixture
async def database(url: str) -> AsyncIterator[Database]:
    """The database of the test, bound to this process."""
    opened = create_database(url, behind_pooler=False)
    bind_database(opened)
    yield opened
    bind_database(None)
    await opened.close()


async def fill(database: Database, jobs: int, *, analyze: bool = True) -> None:
    """Put so many jobs into the queue; without `analyze` its statistics are of the empty table."""
    async with database.engine.begin() as connection:
        await connection.execute(text("ALTER TABLE jobs SET (autovacuum_enabled = off)"))
        await connection.execute(text("ANALYZE jobs"))
    async with get_background_session(statement_seconds=300) as session, session.begin():
        await session.execute(text(MANY_JOBS), {"jobs": jobs})
    if not analyze:
        return
    async with database.engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await connection.execute(text("VACUUM ANALYZE jobs"))


async def plan_of(database: Database, work: Work) -> list[dict[str, Any]]:
    """The nodes of the plan of the first statement on jobs that `work` runs, as it ran."""
    seen: list[tuple[str, Any]] = []

    def note(_c: Any, _u: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        if "jobs" in statement and "EXPLAIN" not in statement:
            seen.append((statement, parameters))

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    async with get_background_session() as session, session.begin():
        await work(session)
        await session.rollback()
    event.remove(database.engine.sync_engine, "before_cursor_execute", note)
    statement, parameters = seen[0]
    async with database.engine.connect() as connection:
        explained = await connection.exec_driver_sql(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters
        )
        plan = explained.scalar_one()
        await connection.rollback()
    return list(nodes(plan[0]["Plan"]))


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A plan node and all below it."""
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


def indexes(plan: list[dict[str, Any]]) -> set[str]:
    return {node["Index Name"] for node in plan if "Index Name" in node}


def tables_read_whole(plan: list[dict[str, Any]]) -> list[str]:
    """Without those that have a few rows at any time."""
    tables = [node["Relation Name"] for node in plan if node["Node Type"] == "Seq Scan"]
    return [table for table in tables if table not in {"address_slots", "workers"}]


@pytest.mark.parametrize("analyze", [True, False], ids=["fresh", "stale"])
async def test_the_claim_reads_only_what_it_takes(database: Database, analyze: bool):
    await fill(database, MANY, analyze=analyze)
    plan = await plan_of(database, lambda s: claim(s, "two", LIMIT, LEASE))
    assert "ix_jobs_fair" in indexes(plan)
    assert tables_read_whole(plan) == []
    assert rows_read(plan) <= LIMIT * 30


@pytest.mark.parametrize("analyze", [True, False], ids=["fresh", "stale"])
async def test_many_users_cost_the_claim_a_step_each(database: Database, analyze: bool):
    await fill(database, FEW, analyze=analyze)
    async with get_background_session() as session, session.begin():
        await session.execute(text(MANY_USERS))
    plan = await plan_of(database, lambda s: claim(s, "two", LIMIT, LEASE))
    assert tables_read_whole(plan) == []
    assert rows_read(plan) <= LIMIT * 30 + 10 * USERS
    counts = [node for node in plan if node.get("Index Name") == "ix_jobs_live"]
    assert [node["Actual Loops"] for node in counts] == [1]


@pytest.mark.parametrize("analyze", [True, False], ids=["fresh", "stale"])
async def test_a_prepared_claim_is_not_planned_again(database: Database, analyze: bool):
    await fill(database, FEW, analyze=analyze)
    async with get_background_session() as session, session.begin():
        for limit in range(1, LIMIT):
            await claim(session, "two", limit, LEASE)
        found = await session.execute(text(PREPARED_CLAIMS))
        ((generic, custom),) = found.all()
    assert generic > custom


def rows_read(plan: list[dict[str, Any]]) -> float:
    """Rows of jobs that the indexes gave, those of running jobs apart."""
    read = (
        node["Actual Rows"] * node["Actual Loops"] + node.get("Rows Removed by Filter", 0)
        for node in plan
        if "Index Name" in node and node["Index Name"] != "ix_jobs_live"
    )
    return float(sum(read))


async def test_the_rescue_looks_at_running_jobs_only(database: Database):
    await fill(database, FEW)
    async with database.engine.begin() as connection:
        await connection.execute(text(MANY_DOMAINS))
        await connection.execute(text("ANALYZE domains"))
    plan = await plan_of(database, rescue)
    assert "ix_jobs_live" in indexes(plan)
    # A table of one row per process: whether the machine of a worker was started again.
    assert set(tables_read_whole(plan)) <= {"workers"}


@pytest.mark.parametrize("analyze", [True, False], ids=["fresh", "stale"])
async def test_the_age_of_the_oldest_job_is_one_probe_per_user(database: Database, analyze: bool):
    await fill(database, FEW, analyze=analyze)
    plan = await plan_of(database, oldest_pending_seconds)
    assert indexes(plan) == {"ix_jobs_fair"}
    assert tables_read_whole(plan) == []
    assert rows_read(plan) < FEW // 10


async def test_heartbeats_change_no_index(database: Database):
    await fill(database, FEW)
    async with get_background_session() as session, session.begin():
        claims = await claim(session, "two", LIMIT, LEASE)
    before = await updates(database)
    for _ in range(20):
        async with get_background_session() as session, session.begin():
            kept, _cancelled = await heartbeat(session, claims, LEASE)
            assert len(kept) == LIMIT
            await session.execute(text("SELECT pg_stat_force_next_flush()"))
    after = await updates(database)
    all_updates, hot = (later - sooner for later, sooner in zip(after, before, strict=True))
    assert all_updates >= 20 * LIMIT
    assert hot / all_updates >= 0.95


async def updates(database: Database) -> tuple[int, int]:
    """Updates of the jobs table so far, and how many of them were HOT."""
    query = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'jobs'"
    async with database.engine.connect() as connection:
        row = (await connection.execute(text(query))).one()
    return int(row[0]), int(row[1])
