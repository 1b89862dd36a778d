"""Migrations run on the data of the version before, and lead to the tables of the models.

A migration that changes existing tables adds a test here that begins with `old_database`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from enum import StrEnum
from typing import Any, TypeVar

import pytest
import pytest_asyncio
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine, event, func, inspect, select, text
from sqlalchemy.orm import InstrumentedAttribute

from siteatlas.catalog.domains import tombstone
from siteatlas.queue.claims import claim
from siteatlas.storage.models import (
    ApiKey,
    Base,
    Domain,
    DomainProblem,
    FeedHead,
    Job,
    JobStatus,
    Scan,
    ScanScope,
    ScanState,
    Sitemap,
    SitemapScan,
    SitemapScanState,
    SitemapStatus,
    SitemapUrl,
)
from siteatlas.storage.schema import current_revision, needed_revision, upgrade_schema
from siteatlas.storage.session import Database
from tests.fixtures.database import PREFIX, PostgresServer
from tests.fixtures.first_schema import (
    DOMAIN,
    FIRST,
    SITEMAP,
    TABLES,
    URLS,
    columns_of,
    fill,
    rows_of,
)

Result = TypeVar("Result")

# Revision 0007 clears these, so that the next read of every document is a full one.
FORGOTTEN_COLUMNS = {"etag", "last_modified", "content_hash"}


@pytest_asyncio.fixture
async def old_database(postgres_server: PostgresServer) -> AsyncIterator[Database]:
    """A database at revision 0001 with the rows of one watched site."""
    name = f"{PREFIX}_old"
    await postgres_server.run(f"CREATE DATABASE {name}")
    database = postgres_server.open(name)
    await upgrade_schema(database.engine, FIRST)
    await on(database, fill)
    yield database
    await database.close()
    await postgres_server.drop(name)


async def on(database: Database, work: Callable[..., Result], *arguments: Any) -> Result:
    """What `work` gives for a connection inside a transaction."""
    async with database.engine.begin() as connection:
        return await connection.run_sync(work, *arguments)


def all_rows(connection: Connection, columns: dict[str, list[str]]) -> dict[str, list[str]]:
    return {table: rows_of(connection, table, columns[table]) for table in TABLES}


def renamed_if_deleted(row: str) -> str:
    """A row of `domains` as revision 0004 makes it; its id comes first."""
    return row.replace(",deleted.example,", f",#{row[1:37]},")


async def test_every_row_of_the_first_version_outlives_all_migrations(old_database: Database):
    assert await current_revision(old_database.engine) == FIRST
    columns = await on(old_database, columns_of)
    columns["sitemaps"] = [name for name in columns["sitemaps"] if name not in FORGOTTEN_COLUMNS]
    before = await on(old_database, all_rows, columns)
    await upgrade_schema(old_database.engine)
    assert await current_revision(old_database.engine) == needed_revision()
    after = await on(old_database, all_rows, columns)
    assert after == before | {"domains": [renamed_if_deleted(row) for row in before["domains"]]}
    assert min(len(rows) for rows in before.values()) >= 1
    assert len(before["sitemap_urls"]) == URLS


async def test_the_migrations_make_exactly_the_tables_of_the_models(database: Database):
    def differences(connection: Connection) -> list[Any]:
        compared = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=compared)
        return list(compare_metadata(context, Base.metadata))

    assert await on(database, differences) == []


@pytest.mark.parametrize(
    ("column", "members"),
    [
        (Job.status, JobStatus),
        (Scan.state, ScanState),
        (Scan.scope, ScanScope),
        (SitemapScan.state, SitemapScanState),
        (Sitemap.status, SitemapStatus),
    ],
    ids=str,
)
async def test_a_status_column_is_text_held_to_the_members_of_its_enumeration(
    database: Database, column: InstrumentedAttribute[Any], members: type[StrEnum]
):
    def stored(connection: Connection) -> tuple[str, list[str]]:
        inspector, table = inspect(connection), column.class_.__tablename__
        (type_,) = [c["type"] for c in inspector.get_columns(table) if c["name"] == column.key]
        checks = inspector.get_check_constraints(table)
        (check,) = [check for check in checks if check["name"] == f"ck_{table}_{column.key}"]
        return str(type_), re.findall(r"'(\w+)'::text", check["sqltext"])

    assert await on(database, stored) == ("TEXT", list(members))


async def test_urls_are_not_rewritten_when_the_listed_text_comes_in(old_database: Database):
    def file_of(connection: Connection) -> int:
        return int(
            connection.execute(text("SELECT pg_relation_filenode('sitemap_urls')")).scalar_one()
        )

    before = await on(old_database, file_of)
    await upgrade_schema(old_database.engine, "0002")
    assert await on(old_database, file_of) == before
    async with old_database.engine.connect() as connection:
        without = select(func.count()).where(SitemapUrl.lastmod_text.is_(None))
        assert (await connection.execute(without)).scalar_one() == URLS


async def test_urls_are_locked_only_after_the_problems_were_copied(old_database: Database):
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(" ".join(statement.split()))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        await upgrade_schema(old_database.engine, "0002")
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    (copied,) = [n for n, s in enumerate(statements) if s.startswith("INSERT INTO domain_problems")]
    assert not any("sitemap_urls" in statement for statement in statements[:copied])
    assert any("ALTER TABLE sitemap_urls" in statement for statement in statements[copied:])


async def test_problems_counted_by_the_first_version_are_taken_over(old_database: Database):
    await upgrade_schema(old_database.engine, "0002")
    statement = select(
        DomainProblem.code,
        DomainProblem.count.label("found"),
        DomainProblem.domain_id,
        DomainProblem.sitemap_id,
        DomainProblem.samples,
        DomainProblem.resolved_at,
    ).order_by(DomainProblem.code)
    async with old_database.engine.connect() as connection:
        rows = (await connection.execute(statement)).all()
    assert [(row.code, row.found) for row in rows] == [("lastmod_invalid", 4), ("scope", 100)]
    assert {(str(row.domain_id), str(row.sitemap_id)) for row in rows} == {(DOMAIN, SITEMAP)}
    assert all(row.samples == [] and row.resolved_at is None for row in rows)


async def test_a_site_deleted_in_the_first_version_gives_up_its_name_and_its_jobs(
    old_database: Database,
):
    retried = (
        "INSERT INTO jobs (status, domain_id, created_by, dedup_key, fence, lease_until) "
        "SELECT status, id, created_by, domain, 1, now() FROM domains "
        "CROSS JOIN (VALUES ('processing'), ('failed')) AS of_deleted (status) "
        "WHERE deleted_at IS NOT NULL"
    )
    await on(old_database, lambda connection: connection.execute(text(retried)))
    await upgrade_schema(old_database.engine, "0004")
    statement = (
        select(Domain.id, Domain.domain, Job.status, Job.lease_until)
        .join(Job, Job.domain_id == Domain.id)
        .where(Domain.deleted_at.is_not(None))
        .order_by(Job.id)
    )
    async with old_database.engine.connect() as connection:
        rows = (await connection.execute(statement)).all()
        watched = select(Domain.domain, Domain.watched).where(Domain.deleted_at.is_(None))
        kept = (await connection.execute(watched)).all()
    assert [row.status for row in rows] == ["cancelled", "failed"]
    assert rows[0].lease_until is None
    assert {row.domain for row in rows} == {tombstone(rows[0].id)}
    assert [tuple(row) for row in kept] == [("example.com", True)]


async def test_the_feed_begins_at_the_last_number_that_a_scan_was_given(old_database: Database):
    await upgrade_schema(old_database.engine)

    def read(connection: Connection) -> tuple[Any, ...]:
        head = connection.execute(select(FeedHead.seq, FeedHead.retained_from)).one()
        numbers = select(func.max(Scan.published_seq), func.max(Domain.last_published_seq))
        return (*head, *connection.execute(numbers.join(Domain, Domain.id == Scan.domain_id)).one())

    assert await on(old_database, read) == (1, 1, 1, 1)


async def test_documents_read_before_the_feed_are_read_again_in_full(old_database: Database):
    await upgrade_schema(old_database.engine)

    def read(connection: Connection) -> list[Any]:
        finished = (
            select(func.max(SitemapScan.finished_at))
            .where(SitemapScan.sitemap_id == Sitemap.id)
            .scalar_subquery()
        )
        known = (Sitemap.etag, Sitemap.content_hash, Sitemap.read_version)
        rows = connection.execute(select(*known, Sitemap.last_complete_at == finished))
        return [tuple(row) for row in rows]

    assert await on(old_database, read) == [(None, None, 0, True)] * 2


async def test_a_scan_that_runs_during_the_upgrade_starts_over(old_database: Database):
    def finish(connection: Connection) -> None:
        connection.execute(text("UPDATE sitemap_scans SET state = 'complete', http_status = 200"))

    def states(connection: Connection) -> list[str]:
        statement = (
            select(SitemapScan.state)
            .join(Scan, Scan.id == SitemapScan.scan_id)
            .where(Scan.state == ScanState.RUNNING)
        )
        return list(connection.scalars(statement))

    await on(old_database, finish)
    await upgrade_schema(old_database.engine)
    assert await on(old_database, states) == [SitemapScanState.PENDING]


async def test_an_installation_of_the_version_before_stays_open_and_its_jobs_are_shared_by_nobody(
    old_database: Database,
):
    await upgrade_schema(old_database.engine, "0007")
    await upgrade_schema(old_database.engine, "0008")
    async with old_database.engine.connect() as connection:
        keys = (await connection.execute(select(func.count()).select_from(ApiKey))).scalar_one()
        jobs = (await connection.execute(text("SELECT shared FROM jobs"))).scalars().all()
    assert keys == 0
    assert jobs == [False] * len(jobs) != []


async def test_documents_without_counts_by_section_are_read_again_in_full(old_database: Database):
    def note_versions(connection: Connection) -> None:
        connection.execute(text("UPDATE sitemaps SET etag = '\"x\"', content_hash = 'x'"))

    def versions(connection: Connection) -> dict[str, tuple[Any, ...]]:
        known = select(Sitemap.type, Sitemap.etag, Sitemap.content_hash, Sitemap.url_breakdown)
        return {row[0]: tuple(row[1:]) for row in connection.execute(known)}

    await upgrade_schema(old_database.engine, "0010")
    await on(old_database, note_versions)
    await upgrade_schema(old_database.engine, "0011")
    found = await on(old_database, versions)
    assert found == {"index": ('"x"', "x", None), "standard": (None, None, None)}


async def test_sites_of_the_version_before_have_no_tags(old_database: Database):
    await upgrade_schema(old_database.engine, "0012")
    await upgrade_schema(old_database.engine)
    async with old_database.engine.connect() as connection:
        tags = (await connection.execute(select(Domain.tags))).scalars().all()
    assert tags == [[]] * len(tags) != []


async def test_digests_of_entries_are_dropped_and_no_url_is_rewritten(old_database: Database):
    def set_digests(connection: Connection) -> None:
        connection.execute(text("UPDATE sitemap_urls SET entry_digest = url_hash"))

    def versions(connection: Connection) -> list[Any]:
        columns = text("ctid::text, xmin::text, url_hash FROM sitemap_urls ORDER BY url_hash")
        return list(map(tuple, connection.execute(select(columns))))

    def columns(connection: Connection) -> set[str]:
        return {column["name"] for column in inspect(connection).get_columns("sitemap_urls")}

    await upgrade_schema(old_database.engine, "0016")
    await on(old_database, set_digests)
    before = await on(old_database, versions)
    kept = await on(old_database, columns) - {"entry_digest"}
    await upgrade_schema(old_database.engine, "0017")
    assert await on(old_database, versions) == before != []
    assert await on(old_database, columns) == kept


async def test_jobs_that_wait_during_the_upgrade_have_no_limit_and_are_claimed(
    old_database: Database,
):
    waiting = (
        "INSERT INTO jobs (created_by, dedup_key, result_data) "
        "SELECT created_by, 'h' || n || '.example.com', '{}' "
        "FROM domains CROSS JOIN generate_series(1, 5) AS n WHERE deleted_at IS NULL"
    )

    def unlimited(connection: Connection) -> list[Any]:
        columns = (Job.site, Job.address, Job.status)
        return [tuple(row) for row in connection.execute(select(*columns).order_by(Job.id))]

    await upgrade_schema(old_database.engine, "0017")
    await on(old_database, lambda connection: connection.execute(text(waiting)))
    await upgrade_schema(old_database.engine, "0018")
    pending = [row for row in await on(old_database, unlimited) if row[2] == JobStatus.PENDING]
    assert pending == [(None, None, JobStatus.PENDING)] * len(pending)
    async with old_database.session({}) as session, session.begin():
        claims = await claim(session, "worker", 20, 60, max_per_site=1)
    assert len(claims) == len(pending) >= 5


async def test_problems_and_failed_documents_become_findings_that_were_told(
    old_database: Database,
):
    await upgrade_schema(old_database.engine, "0018")
    fail = (
        "UPDATE sitemaps SET status = 'failed', error_code = 'http_not_found', error = 'gone' "
        "WHERE id = (SELECT id FROM sitemaps LIMIT 1)"
    )
    add = (
        "INSERT INTO domain_problems (sitemap_id, code, domain_id, count, samples, first_scan_id, "
        'last_scan_id, resolved_at) SELECT id, code, domain_id, n, \'[{"url": "/x"}]\', 3, 7, '
        "CASE code WHEN 'control_char' THEN now() END FROM sitemaps CROSS JOIN (VALUES "
        "('entry_malformed', 2), ('entry_salvaged', 5), ('control_char', 1)) AS found (code, n) "
        "ON CONFLICT DO NOTHING"
    )
    needs_scan = "INSERT INTO scans (job_id, job_uuid, domain_id, created_by) "
    needs_scan += "SELECT 4711, gen_random_uuid(), id, created_by FROM domains WHERE watched"
    for statement in (fail, add, needs_scan):
        await on(old_database, lambda connection, sql=statement: connection.execute(text(sql)))
    await upgrade_schema(old_database.engine, "0019")

    def findings(connection: Connection) -> set[tuple[Any, ...]]:
        columns = "code, count, announced, samples FROM findings"
        return {
            (row.code, row.count, row.announced, str(row.samples))
            for row in connection.execute(text(f"SELECT {columns}"))
        }

    found = await on(old_database, findings)
    assert ("xml-malformed", 7, True, "[{'url': '/x'}]") in found
    assert ("sitemap-http-error", 1, True, "[]") in found
    assert not {code for code, *_ in found} & {"url-control-character"}
