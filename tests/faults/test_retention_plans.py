"""Retention with nothing to do reads no table, however much is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import event, text

from siteatlas.catalog.domains import prune_deleted_domains
from siteatlas.queue.retention import prune_batches, prune_jobs, prune_unrequested_documents
from siteatlas.queue.submission import close_batches
from siteatlas.storage.session import (
    Database,
    bind_database,
    create_database,
    get_background_session,
)

ROWS = 20_000
# Jobs that ended today, each with a site, a scan, a document and a batch.
MANY_ROWS = (
    """
    INSERT INTO domains (domain, base_url, created_by)
    SELECT 'site-' || n, 'http://site', u.id
    FROM generate_series(1, :rows) n, (SELECT id FROM users ORDER BY id LIMIT 1) u
    """,
    """
    INSERT INTO jobs (created_by, domain_id, status, finished_at)
    SELECT created_by, id, 'completed', now() FROM domains
    """,
    """
    INSERT INTO scans (job_id, job_uuid, domain_id, created_by, state, finished_at)
    SELECT id, job_id, domain_id, created_by, 'published', now() FROM jobs
    """,
    """
    INSERT INTO sitemaps (domain_id, url, url_hash, type, status, discovery_method, first_job_id,
    last_job_id, created_by)
    SELECT domain_id, 'http://site/a.xml', 1, 'standard', 'completed', 'robots_txt', job_uuid,
    job_uuid, created_by FROM scans
    """,
    """
    INSERT INTO batches (total, completed, failed, created_by, finished_at)
    SELECT 1, 1, 0, created_by, now() FROM scans
    """,
)
TABLES = "jobs, domains, scans, sitemaps, batches"
pytestmark = [pytest.mark.faults_short, pytest.mark.timeout(600)]
PORTIONS = [
    close_batches,
    prune_batches,
    prune_deleted_domains,
    prune_jobs,
    prune_unrequested_documents,
]


@pytest_asyncio.fixture
async def filled(url: str) -> AsyncIterator[Database]:
    """A database in which nothing is due yet."""
    opened = create_database(url, behind_pooler=False)
    bind_database(opened)
    async with get_background_session(statement_seconds=300) as session, session.begin():
        for statement in MANY_ROWS:
            await session.execute(text(statement), {"rows": ROWS} if ":rows" in statement else {})
    async with opened.engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await connection.execute(text(f"VACUUM ANALYZE {TABLES}"))
    yield opened
    bind_database(None)
    await opened.close()


async def plans_of(database: Database, portion: Any) -> list[dict[str, Any]]:
    """The plan nodes of every statement that a portion runs."""
    seen: list[tuple[str, Any]] = []

    def note(_c: Any, _u: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        if "set_config" not in statement:
            seen.append((statement, parameters))

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    async with get_background_session() as session, session.begin():
        assert await portion(session) == 0
    event.remove(database.engine.sync_engine, "before_cursor_execute", note)
    plans: list[dict[str, Any]] = []
    async with database.engine.connect() as connection:
        for statement, parameters in seen:
            explained = await connection.exec_driver_sql(
                f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters
            )
            plans += nodes(explained.scalar_one()[0]["Plan"])
    return plans


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A plan node and all below it."""
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


@pytest.mark.parametrize("portion", PORTIONS, ids=lambda portion: portion.__name__)
async def test_nothing_to_prune_reads_no_table(filled: Database, portion: Any):
    plan = await plans_of(filled, portion)
    assert plan
    whole = [node for node in plan if node["Node Type"] == "Seq Scan" and node["Actual Loops"]]
    assert [node["Relation Name"] for node in whole] == []
    assert sum(node["Actual Rows"] for node in plan if "Relation Name" in node) <= 1
