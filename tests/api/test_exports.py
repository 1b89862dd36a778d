"""Exports over HTTP: headers, refusals, compression."""

from __future__ import annotations

import gzip
from contextlib import ExitStack

import httpx
import orjson
import pytest
from fastapi import FastAPI
from sqlalchemy import select

from siteatlas.access.scopes import Scope
from siteatlas.export import parquet
from siteatlas.storage.models import User
from siteatlas.storage.session import Database
from tests.fixtures.access import application, client_with, make_key
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_sitemap, add_urls

SITE = "/api/v3/domains/example.com"


async def add_site(name: str = "example.com", urls: int = 50) -> None:
    """A site with some URLs."""
    async with transaction() as session:
        sitemap = await add_sitemap(session, await add_domain(session, name))
        await add_urls(session, sitemap.id, [(n, f"https://{name}/{n}") for n in range(urls)])


@pytest.mark.parametrize(
    ("format", "media_type"),
    [
        ("csv", "text/csv; charset=utf-8"),
        ("jsonl", "application/jsonl"),
        ("parquet", "application/vnd.apache.parquet"),
    ],
)
async def test_an_export_is_a_file_with_its_number(
    client: httpx.AsyncClient, format: str, media_type: str
):
    await add_site()
    response = await client.get(f"{SITE}/export", params={"format": format})
    assert (response.status_code, response.headers["content-type"]) == (200, media_type)
    file = f'attachment; filename="example.com-urls.{format}"'
    assert response.headers["content-disposition"] == file
    assert response.headers["siteatlas-as-of-seq"] == "0"
    assert response.headers["siteatlas-schema"] == "urls/1"
    assert "content-length" not in response.headers


async def test_all_sites_are_exported_together(client: httpx.AsyncClient):
    await add_site("a.example", 1)
    await add_site("b.example", 2)
    response = await client.get("/api/v3/export", params={"format": "jsonl"})
    *rows, last = map(orjson.loads, response.content.splitlines())
    assert sorted(row["domain"] for row in rows) == ["a.example", "b.example", "b.example"]
    assert last["end"] is True


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"what": "changes", "contains": "a"}, 422),
        ({"after": "1"}, 422),
        ({"kinds": "added"}, 422),
        ({"format": "xlsx"}, 422),
        ({"limit": "3"}, 422),
        ({"what": "changes", "after": "99"}, 410),
    ],
)
async def test_what_does_not_fit_is_refused_before_the_first_byte(
    client: httpx.AsyncClient, query: dict[str, str], status: int
):
    await add_site()
    response = await client.get(f"{SITE}/export", params=query)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"


async def test_an_unknown_site_is_not_found(client: httpx.AsyncClient):
    response = await client.get(f"{SITE}/export")
    assert (response.status_code, response.json()["code"]) == (404, "domain_not_found")


@pytest.mark.parametrize("path", [f"{SITE}/urls", f"{SITE}/export", "/domains", "/static/app.css"])
async def test_answers_are_compressed_for_those_who_ask(client: httpx.AsyncClient, path: str):
    await add_site()
    plain = await client.get(path, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    async with client.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as response:
        assert response.headers["content-encoding"] == "gzip"
        assert "accept-encoding" in response.headers["vary"].lower()
        sent = b"".join([part async for part in response.aiter_raw()])
    assert len(sent) < len(plain.content) / 2
    assert gzip.decompress(sent) == plain.content


async def test_parquet_is_not_compressed_again(client: httpx.AsyncClient):
    await add_site()
    response = await client.get(
        f"{SITE}/export", params={"format": "parquet"}, headers={"Accept-Encoding": "gzip"}
    )
    assert "content-encoding" not in response.headers


async def test_head_reads_no_rows(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch):
    async def read_rows(*_arguments: object) -> None:
        raise AssertionError("rows were read")

    await add_site()
    monkeypatch.setattr("siteatlas.export.streaming.read_urls", read_rows)
    for path in (f"{SITE}/export", "/api/v3/export"):
        response = await client.head(path)
        assert (response.status_code, response.content) == (200, b"")
        assert response.headers["siteatlas-schema"] == "urls/1"


async def parquet_status(app: FastAPI, key: str | None = None) -> int:
    async with client_with(app, key) as client:
        response = await client.get(f"{SITE}/export", params={"format": "parquet"})
    if response.status_code == 429:
        assert response.json()["code"] == "too_many_exports"
        assert "retry-after" in response.headers
    return response.status_code


async def test_parquet_is_refused_while_too_many_others_are_encoded(app: FastAPI):
    await add_site(urls=1)
    with ExitStack() as running:
        for _ in range(parquet.MAX_PROCESSES):
            running.enter_context(parquet.count_parquet_export(None))
        assert await parquet_status(app) == 429
    for _ in range(parquet.MAX_PROCESSES + 1):
        assert await parquet_status(app) == 200


async def test_one_user_has_at_most_half_of_the_parquet_processes(database: Database):
    app = application(database)
    ann, bob = await make_key(Scope.READ), await make_key(Scope.READ, user="bob")
    await add_site(urls=1)
    async with transaction() as session:
        user = (await session.execute(select(User.id).where(User.name == "ann"))).scalar_one()
    with ExitStack() as running:
        for _ in range(parquet.MAX_PROCESSES // 2):
            running.enter_context(parquet.count_parquet_export(user))
        assert await parquet_status(app, ann) == 429
        assert await parquet_status(app, bob) == 200
    assert await parquet_status(app, ann) == 200
