"""Backup and restore: what comes back, what is refused, and what readers of the feed notice."""

from __future__ import annotations

import gzip
import io
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select, text, update

from siteatlas.access.keys import KeyRequest, Scope, create_key, revoke
from siteatlas.catalog.access import find_key_view
from siteatlas.catalog.domains import set_site_headers
from siteatlas.errors import (
    BackupInvalid,
    DatabaseError,
    DatabaseInUse,
    DatabaseNotEmpty,
    SchemaNewer,
)
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.gate import OriginHeaders
from siteatlas.notify.endpoints import EndpointRequest, create_endpoint
from siteatlas.queue.fence import WorkerReport, report_worker, sign_off_worker
from siteatlas.storage import backup as archive
from siteatlas.storage.backup import (
    ArchiveReader,
    ArchiveWriter,
    Manifest,
    TableContents,
    backed_up_tables,
    backup_target,
    verify_backup,
    write_backup,
)
from siteatlas.storage.models import LOCAL_USER_ID, ApiKey, Domain, JobStatus, SitemapUrl
from siteatlas.storage.schema import current_revision, needed_revision, upgrade_schema
from siteatlas.storage.session import Database
from siteatlas.storage.startup import find_taken_ids
from tests.catalog.database.backups import backup, restore, rows_by_table
from tests.catalog.database.runs import scan, stop_midway
from tests.fixtures.changing_site import ChangingSite
from tests.fixtures.database import PREFIX, PostgresServer, transaction
from tests.fixtures.feed import FeedClient, Mirror
from tests.fixtures.first_schema import FIRST, TABLES, URLS, columns_of, fill
from tests.fixtures.pipeline import settings_for, work
from tests.fixtures.queue import job_of, submit
from tests.fixtures.records import add_domain, add_sitemap, add_urls

LARGE = "https://example.com/" + "x" * 20 * 2**20
WORKER = WorkerReport("worker-a", "host", 1, "1", slots=4, running=0)
BEFORE_WEBHOOKS = "0011"
REVOKED_KEY = text(
    "INSERT INTO api_keys (id, user_id, name, scopes, key_hash, revoked_at) "
    "SELECT :key_id, id, 'old', '[]', 'hash', now() FROM users LIMIT 1"
)
ODD_URLS = [
    "https://example.com/tab\tand\\backslash",
    "https://example.com/\N{SNOWMAN}\N{GRINNING FACE}",
    "https://example.com/\\N",
    "https://example.com/\\.",
]


async def wipe(database: Database) -> None:
    async with database.engine.begin() as connection:
        names = ", ".join(table.name for table in backed_up_tables() if table.name != "users")
        await connection.execute(text(f"TRUNCATE {names} CASCADE"))


@pytest.mark.slow
async def test_a_restore_brings_back_what_was_there_and_running_jobs_resume(
    database: Database, client: httpx.AsyncClient
):
    async with ChangingSite() as site:
        site.add("/index.xml", children=["/a.xml", "/b.xml"])
        for path in ("/a.xml", "/b.xml"):
            site.add(path, [f"{path}/{number}" for number in range(200)])
        await scan(site)
        site["/a.xml"].put("/new-page")
        site["/b.xml"].put("/another-page")
        job_id = await stop_midway(site, "/b.xml")
        assert job_id is not None
        assert (await job_of(job_id)).status == JobStatus.PROCESSING
        feed = FeedClient(client, site.host_port)
        before, listed = await rows_by_table(), await feed.listing()
        content = await backup(database)
        assert await rows_by_table() == before

        await wipe(database)
        rows = await restore(database, content)
        after = await rows_by_table()
        assert rows == {name: len(found) for name, found in before.items()}
        changed = {name for name in before if before[name] != after[name]}
        assert changed == {"feed_head", "jobs", "job_attempts"}
        assert await feed.listing() == listed
        resumed = await job_of(job_id)
        assert (resumed.status, resumed.rescues, resumed.attempt) == (JobStatus.PENDING, 0, 0)

        mirror = await Mirror.of(feed)
        await work(settings_for(site))
        assert (await job_of(job_id)).status == JobStatus.COMPLETED
        _, stored = await feed.listing()
        assert await mirror.replay(await feed.events(), feed.document) == stored
        assert len(stored) == 402


@pytest.mark.slow
async def test_a_reader_with_an_old_cursor_learns_how_to_continue(
    database: Database, client: httpx.AsyncClient
):
    async with ChangingSite() as site:
        site.add("/index.xml", children=["/sitemap.xml"])
        site.add("/sitemap.xml", ["/1", "/2"])
        await scan(site)
        content = await backup(database)
        cursor = (await FeedClient(client).page())["next_cursor"]
        await restore(database, content, replace=True)
        feed = FeedClient(client, site.host_port)
        refused = await client.get(feed.route, params={"cursor": cursor})
        assert refused.status_code == 410
        assert refused.json()["code"] == "cursor_expired"
        earliest = refused.json()["earliest_cursor"]
        assert (await feed.page(cursor=earliest))["items"]
        mirror = await Mirror.of(feed)
        site["/sitemap.xml"].put("/3")
        await scan(site)
        _, stored = await feed.listing()
        assert await mirror.replay(await feed.events(), feed.document) == stored
        assert len(stored) == 3


async def test_ids_go_on_behind_those_of_the_backup(database: Database):
    first = await submit("a.example")
    content = await backup(database)
    await wipe(database)
    await restore(database, content)
    assert (await submit("b.example")).id > first.id


async def test_texts_come_back_as_they_were(database: Database):
    async with transaction() as session:
        sitemap = await add_sitemap(session, await add_domain(session))
        await add_urls(session, sitemap.id, list(enumerate(ODD_URLS)))
    content = await backup(database)
    await restore(database, content, replace=True)
    async with transaction() as session:
        urls = (await session.scalars(select(SitemapUrl.url).order_by(SitemapUrl.url_hash))).all()
    assert list(urls) == ODD_URLS


def test_two_backups_to_one_name_do_not_mix(tmp_path: Path):
    file = tmp_path / "siteatlas.backup"
    with backup_target(str(file)) as first:
        first.write(b"one")
        with backup_target(str(file)) as second:
            second.write(b"two")
            assert len(list(tmp_path.iterdir())) == 2
        assert file.read_bytes() == b"two"
        first.write(b" and more")
    assert file.read_bytes() == b"one and more"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_a_backup_that_fails_leaves_the_older_one_and_nothing_else(tmp_path: Path):
    file = tmp_path / "siteatlas.backup"
    file.write_bytes(b"older")
    with suppress(DatabaseError), backup_target(str(file)) as target:
        target.write(b"newer")
        raise DatabaseError
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_bytes() == b"older"


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with backup_target(str(pipe)) as target:
        target.write(b"backup")
    assert os.read(reader, 100) == b"backup"
    os.close(reader)
    assert pipe.is_fifo()


async def test_data_is_not_replaced_unasked(database: Database):
    async with transaction() as session:
        await add_domain(session)
    content = await backup(database)
    before = await rows_by_table()
    with pytest.raises(DatabaseNotEmpty, match="--replace"):
        await restore(database, content)
    assert await rows_by_table() == before
    assert (await restore(database, content, replace=True))["domains"] == 1


async def test_tables_of_other_programs_are_not_emptied(database: Database):
    async with transaction() as session:
        await add_domain(session)
        await session.execute(text("CREATE TABLE notes (domain_id uuid REFERENCES domains (id))"))
        await session.execute(text("INSERT INTO notes SELECT id FROM domains"))
    content = await backup(database)
    with pytest.raises(DatabaseError, match="another program"):
        await restore(database, content, replace=True)
    async with transaction() as session:
        assert await session.scalar(text("SELECT count(*) FROM notes")) == 1


async def test_a_restore_waits_until_workers_are_stopped(database: Database):
    content = await backup(database)
    async with transaction() as session:
        await report_worker(session, WORKER)
    with pytest.raises(DatabaseInUse):
        await restore(database, content, replace=True)
    async with transaction() as session:
        await sign_off_worker(session, WORKER)
    await restore(database, content, replace=True)


async def test_a_damaged_file_changes_nothing(database: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(archive, "PART_BYTES", 1000)
    async with transaction() as session:
        sitemap = await add_sitemap(session, await add_domain(session))
        await add_urls(session, sitemap.id, [(n, f"https://example.com/{n}") for n in range(300)])
    content = await backup(database)
    before = await rows_by_table()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
    cut = [content[:length] for length in (0, 5, 200, middle, len(content) - 20)]
    for damaged in (*cut, flipped, b"no backup at all" * 100):
        with pytest.raises(BackupInvalid):
            await restore(database, damaged, replace=True)
    assert await rows_by_table() == before


async def test_a_row_may_be_larger_than_a_part_of_the_file(database: Database):
    async with transaction() as session:
        await add_domain(session)
        await session.execute(update(Domain).values(base_url=LARGE))
    await restore(database, await backup(database), replace=True)
    async with transaction() as session:
        assert await session.scalar(select(Domain.base_url)) == LARGE


async def test_a_backup_without_some_of_its_rows_is_refused(database: Database):
    file = io.BytesIO()
    table = TableContents("users", ("id", "name", "created_at"))
    writer = ArchiveWriter(file, Manifest(needed_revision(), "1", "now", (table,)))
    writer.count("users", 2)
    writer.finish()
    before = await rows_by_table()
    with pytest.raises(BackupInvalid):
        await restore(database, file.getvalue())
    assert await rows_by_table() == before


async def test_a_backup_of_a_newer_version_is_refused(database: Database):
    file = io.BytesIO()
    ArchiveWriter(file, Manifest("9999", "77.0", "now", ())).finish()
    with pytest.raises(SchemaNewer, match=r"77\.0"):
        await restore(database, file.getvalue())


async def test_a_key_that_was_revoked_after_the_backup_stays_revoked(database: Database):
    async with transaction() as session:
        key = await create_key(session, KeyRequest("old", frozenset({Scope.READ})))
    content = await backup(database)
    async with transaction() as session:
        await revoke(session, key.id)
    await restore(database, content, replace=True)
    async with transaction() as session:
        assert (await find_key_view(session, key.id)).status == "revoked"


async def backup_of_the_first_version(database: Database) -> bytes:
    """A backup as the first schema would have made it."""
    async with database.engine.begin() as connection:
        await connection.run_sync(fill)
        columns = await connection.run_sync(columns_of)
        driver: Any = (await connection.get_raw_connection()).driver_connection
        tables = tuple(TableContents(name, tuple(columns[name])) for name in TABLES)
        file = io.BytesIO()
        writer = ArchiveWriter(file, Manifest(FIRST, "0.1", "now", tables))
        for table in tables:
            rows = writer.table(table.name)
            done = await driver.copy_from_table(
                table.name, columns=table.columns, output=rows.write, format="text"
            )
            rows.flush()
            writer.count(table.name, int(done.split()[-1]))
        writer.finish()
    return file.getvalue()


@asynccontextmanager
async def database_at(server: PostgresServer, revision: str) -> AsyncIterator[Database]:
    """A database with the schema of an earlier version."""
    name = f"{PREFIX}_earlier"
    await server.run(f"CREATE DATABASE {name}")
    earlier = server.open(name)
    try:
        await upgrade_schema(earlier.engine, revision)
        yield earlier
    finally:
        await earlier.close()
        await server.drop(name)


async def test_a_backup_of_an_earlier_version_is_upgraded(
    database: Database, postgres_server: PostgresServer
):
    async with database_at(postgres_server, FIRST) as first:
        content = await backup_of_the_first_version(first)
    assert (await restore(database, content))["sitemap_urls"] == URLS
    assert await current_revision(database.engine) == needed_revision()
    async with transaction() as session:
        assert await session.scalar(select(func.count()).select_from(SitemapUrl)) == URLS
        assert await session.scalar(select(func.count()).select_from(Domain))


async def test_workers_of_an_earlier_version_are_noticed(
    database: Database, postgres_server: PostgresServer
):
    content = await backup(database)
    async with database_at(postgres_server, FIRST) as first:
        async with first.engine.begin() as connection:
            await connection.run_sync(fill)
        with pytest.raises(DatabaseInUse):
            await restore(first, content, replace=True)
        assert await current_revision(first.engine) == FIRST


async def test_data_of_an_earlier_version_is_replaced_only_on_request(
    database: Database, postgres_server: PostgresServer
):
    content = await backup(database)
    async with database_at(postgres_server, FIRST) as first:
        assert (await restore(first, content))["domains"] == 0
    async with database_at(postgres_server, FIRST) as first:
        async with first.engine.begin() as connection:
            await connection.run_sync(fill)
            await connection.execute(text("DELETE FROM workers"))
        with pytest.raises(DatabaseNotEmpty):
            await restore(first, content)
        assert (await restore(first, content, replace=True))["domains"] == 0
        assert await current_revision(first.engine) == needed_revision()


async def test_a_key_that_was_revoked_in_an_earlier_version_stays_revoked(
    database: Database, postgres_server: PostgresServer
):
    async with transaction() as session:
        key = await create_key(session, KeyRequest("old", frozenset({Scope.READ})))
    content = await backup(database)
    async with database_at(postgres_server, BEFORE_WEBHOOKS) as earlier:
        async with earlier.engine.begin() as connection:
            await connection.execute(REVOKED_KEY, {"key_id": key.id})
        await restore(earlier, content, replace=True)
        async with earlier.engine.begin() as connection:
            assert await connection.scalar(select(ApiKey.revoked_at).where(ApiKey.id == key.id))


async def next_ids(database: Database) -> dict[str, int | None]:
    """The last value of each sequence."""
    async with database.engine.connect() as connection:
        rows = await connection.execute(
            text("SELECT sequencename, last_value FROM pg_sequences ORDER BY sequencename")
        )
        return {str(name): last for name, last in rows}


async def test_a_restore_that_fails_at_its_end_leaves_rows_and_sequences_as_they_were(
    database: Database,
):
    await submit("example.com")
    content = await backup(database)
    for number in range(5):
        await submit(f"later{number}.example.com")
    rows, ids = await rows_by_table(), await next_ids(database)
    for damaged in (content[:-1], content + b"\0", content[:-9] + b"damaged!!"):
        with pytest.raises(BackupInvalid):
            await restore(database, damaged, replace=True)
    assert (await rows_by_table(), await next_ids(database)) == (rows, ids)
    await submit("after.example.com")


async def test_new_rows_continue_behind_the_restored_ones(database: Database):
    first = await submit("example.com")
    content = await backup(database)
    await submit("later.example.com")
    await restore(database, content, replace=True)
    assert await find_taken_ids(database) == []
    assert await submit("after.example.com") != first


async def test_a_sequence_behind_its_rows_is_found(database: Database):
    await submit("example.com")
    await submit("two.example.com")
    async with database.engine.begin() as connection:
        await connection.execute(text("ALTER TABLE jobs ALTER COLUMN id RESTART WITH 1"))
    (found,) = await find_taken_ids(database)
    assert (found.table, found.column) == ("jobs", "id")


async def test_a_backup_is_verified_without_a_database(database: Database):
    await submit("example.com")
    content = await backup(database)
    rows = await verify_backup(ArchiveReader(io.BytesIO(content)))
    assert rows == {name: len(lines) for name, lines in (await rows_by_table()).items()}


async def test_a_backup_has_request_headers_and_webhooks_unless_it_is_without_secrets(
    database: Database,
):
    async with transaction() as session:
        site = await add_domain(session)
        await set_site_headers(
            session, site, OriginHeaders("https://example.com", {"X-Key": "5ecret"}), LOCAL_USER_ID
        )
        await create_endpoint(
            session, EndpointRequest("https://example.com/hook"), EgressPolicy(), LOCAL_USER_ID
        )
    contents = {}
    for secrets in (True, False):
        file = io.BytesIO()
        await write_backup(database, file, secrets=secrets)
        contents[secrets] = file.getvalue()
    await restore(database, contents[True], replace=True)
    rows = await rows_by_table()
    assert [len(rows[name]) for name in ("site_headers", "webhook_endpoints")] == [1, 1]
    await restore(database, contents[False], replace=True)
    rows = await rows_by_table()
    assert [len(rows[name]) for name in ("site_headers", "webhook_endpoints")] == [0, 0]
    assert len(rows["domains"]) == 1
    for kind, words in ((True, (b"5ecret", b"whsec_")), (False, ())):
        plain = gzip.decompress(contents[kind])
        assert [word for word in (b"5ecret", b"whsec_") if word in plain] == list(words)
