"""Health, and the responses of the API while the database is unavailable."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI
from sqlalchemy import text
from sqlalchemy.pool import QueuePool
from structlog.testing import capture_logs

from siteatlas.errors import DatabaseFull, DatabasePoolExhausted
from siteatlas.meters import LAG_CHECK_SECONDS, meters, watch_loop_lag
from siteatlas.storage.schema import needed_revision
from siteatlas.storage.session import Database, bound_database
from tests.fixtures.database import transaction


async def test_the_process_says_that_it_is_alive(client: httpx.AsyncClient):
    response = await client.get("/health")
    assert (response.status_code, response.json()["status"]) == (200, "ok")
    assert response.json()["loop_lag_seconds"] == round(meters.loop_lag_seconds, 4)


async def test_a_loop_that_was_blocked_is_seen_to_lag() -> None:
    watch = asyncio.create_task(watch_loop_lag())
    before = meters.longest_loop_lag_seconds
    await asyncio.sleep(LAG_CHECK_SECONDS * 0.8)
    time.sleep(before + 0.4)  # noqa: ASYNC251 - the fault to be seen
    await asyncio.sleep(0.01)
    watch.cancel()
    assert meters.loop_lag_seconds > 0.2
    assert meters.longest_loop_lag_seconds >= meters.loop_lag_seconds


async def test_the_database_says_who_it_is(client: httpx.AsyncClient):
    answer = (await client.get("/health/database")).json()
    assert answer["status"] == "ok"
    assert answer["schema_revision"] == answer["needed_revision"] == needed_revision()
    assert int(answer["server_version"].split(".")[0]) >= 15
    assert answer["latency_ms"] > 0
    assert answer["pool"]["size"] >= 1


@pytest.mark.criterion("schema-checked")
async def test_an_outdated_schema_is_503(client: httpx.AsyncClient):
    async with transaction() as session:
        await session.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    response = await client.get("/health/database")
    assert (response.status_code, response.json()["code"]) == (503, "schema_outdated")


async def test_a_full_disk_is_503_for_a_minute(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    now = 1000.0
    monkeypatch.setattr(meters, "clock", lambda: now)
    monkeypatch.setattr(meters, "disk_full_until", 0.0)
    full = "DO $$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = '53100'; END $$"
    with suppress(DatabaseFull):
        async with transaction() as session:
            await session.execute(text(full))
    for seconds, status in ((59, 503), (2, 200)):
        now += seconds
        response = await client.get("/health/database")
        assert response.status_code == status
        assert response.json().get("code") == ("database_full" if status == 503 else None)


async def test_a_newer_schema_is_503_and_called_newer(client: httpx.AsyncClient):
    async with transaction() as session:
        await session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    response = await client.get("/health/database")
    assert (response.status_code, response.json()["code"]) == (503, "schema_newer")
    assert "9999" in response.json()["detail"]


@pytest.mark.parametrize("path", ["/health/database", "/api/v3/jobs", "/api/v3/domains"])
async def test_a_database_without_our_tables_is_503(client: httpx.AsyncClient, path: str):
    async with transaction() as session:
        await session.execute(text("DROP TABLE alembic_version"))
        await session.execute(text("ALTER TABLE jobs RENAME TO other_jobs"))
        await session.execute(text("ALTER TABLE domains RENAME COLUMN origin TO source"))
    response = await client.get(path)
    assert (response.status_code, response.json()["code"]) == (503, "schema_outdated")
    assert "siteatlas db upgrade" in response.json()["detail"]


async def test_a_pool_without_a_free_connection_is_503_with_a_message(
    client: httpx.AsyncClient, database: Database
):
    pool = database.engine.pool
    assert isinstance(pool, QueuePool)
    pool._timeout = 0.1
    async with AsyncExitStack() as stack:
        for _ in range(pool.size()):
            await stack.enter_async_context(database.engine.connect())
        response = await client.get("/health/database")
        metrics = await client.get("/metrics")
    assert (response.status_code, response.json()["code"]) == (503, "database_pool_exhausted")
    assert response.json()["detail"] == DatabasePoolExhausted().message
    assert "siteatlas_database_up 0" in metrics.text
    assert (await client.get("/health/database")).status_code == 200


async def test_a_read_only_database_is_503_for_writers_only(
    client: httpx.AsyncClient, database_name: str
):
    async with transaction() as session:
        await session.execute(
            text(f"ALTER DATABASE {database_name} SET default_transaction_read_only = on")
        )
    await bound_database().engine.dispose()
    written = await client.post("/api/v3/sitemap/scan", json={"base_url": "example.com"})
    assert (written.status_code, written.json()["code"]) == (503, "database_read_only")
    assert (await client.get("/api/v3/jobs")).status_code == 200
    health = await client.get("/health/database")
    assert (health.status_code, health.json()["code"]) == (503, "database_read_only")


async def test_a_database_that_does_not_answer_is_503_in_time(
    client: httpx.AsyncClient, app: FastAPI, frozen_connections: None
):
    """The three queries take three connections; another would be opened anew and would answer."""
    app.state.api.database_state._seconds = app.state.api.queue_load._seconds = 0.3
    asked = [client.get("/health/database") for _ in range(15)]
    answers = await asyncio.gather(*asked, client.get("/metrics"), client.get("/health"))
    assert [answer.status_code for answer in answers[:15]] == [503] * 15
    assert answers[0].json()["code"] == "database_timeout"
    assert "0.3 seconds" in answers[0].json()["detail"]
    assert "siteatlas_database_up 0" in answers[15].text
    assert answers[16].status_code == 200


async def test_a_database_that_answers_again_is_seen_at_once(
    client: httpx.AsyncClient, app: FastAPI, database: Database
):
    app.state.api.database_state._seconds = 0.3
    async with frozen(database):
        assert (await client.get("/health/database")).status_code == 503
    app.state.api.database_state._seconds = 10
    assert (await client.get("/health/database")).status_code == 200


@asynccontextmanager
async def frozen(database: Database) -> AsyncIterator[None]:
    """The connections that the pool gives away next belong to stopped server processes."""
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(database.engine.connect()) for _ in range(3)]
        processes = [
            (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            for connection in opened
        ]
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


@pytest_asyncio.fixture
async def frozen_connections(database: Database) -> AsyncIterator[None]:
    async with frozen(database):
        yield


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/health/database"),
        ("GET", "/api/v3/jobs"),
        ("GET", "/api/v3/domains/example.com/urls"),
        ("POST", "/api/v3/sitemap/scan"),
    ],
)
async def test_without_a_database_the_answer_is_503(
    cut_off_client: httpx.AsyncClient, method: str, path: str
):
    body = {"base_url": "example.com"} if method == "POST" else None
    response = await cut_off_client.request(method, path, json=body)
    alive = await cut_off_client.get("/health")
    assert (response.status_code, response.json()["code"]) == (503, "database_unavailable")
    assert response.headers["retry-after"] == "5"
    assert alive.status_code == 200


async def test_a_request_that_met_no_database_is_in_the_log(cut_off_client: httpx.AsyncClient):
    with capture_logs() as lines:
        response = await cut_off_client.get("/api/v3/jobs")
    assert response.status_code == 503
    (line,) = [line for line in lines if line["event"] == "service_unavailable"]
    assert (line["path"], line["error"]) == ("/api/v3/jobs", "database_unavailable")
