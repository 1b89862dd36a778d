"""Health, and what the API says while the database is away."""

from __future__ import annotations

import httpx
import pytest
from sqlalchemy import text

from siteatlas.storage.schema import needed_revision
from tests.fixtures.database import transaction


async def test_the_process_says_that_it_is_alive(client: httpx.AsyncClient):
    response = await client.get("/health")
    assert (response.status_code, response.json()["status"]) == (200, "ok")


async def test_the_database_says_who_it_is(client: httpx.AsyncClient):
    answer = (await client.get("/health/database")).json()
    assert answer["status"] == "ok"
    assert answer["schema_revision"] == answer["needed_revision"] == needed_revision()
    assert int(answer["server_version"].split(".")[0]) >= 15
    assert answer["latency_ms"] > 0
    assert answer["pool"]["size"] >= 1


async def test_an_outdated_schema_is_503(client: httpx.AsyncClient):
    async with transaction() as session:
        await session.execute(text("UPDATE alembic_version SET version_num = '0000'"))
    response = await client.get("/health/database")
    assert (response.status_code, response.json()["code"]) == (503, "schema_outdated")


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
