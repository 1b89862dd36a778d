"""Exports over HTTP: headers, refusals, compression."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import httpx
import orjson
import pytest
from fastapi import FastAPI
from sqlalchemy import select
from starlette.types import Message, Receive, Send
from starlette.types import Scope as AsgiScope

from siteatlas.access import limits
from siteatlas.access.identity import LOCAL_IDENTITY
from siteatlas.access.keys import Scope
from siteatlas.access.limits import AccessLimits
from siteatlas.api.routers import exports
from siteatlas.errors import KeyRequired
from siteatlas.storage.models import User
from siteatlas.storage.session import Database
from tests.fixtures.access import application, client_with, make_key, revoke
from tests.fixtures.database import transaction
from tests.fixtures.parquet_processes import encoding_processes
from tests.fixtures.records import add_domain, add_sitemap, add_urls

SITE = "/api/v3/domains/example.com"
BASE_URL = "http://localhost:8000"
AfterPart = Callable[[Message], Awaitable[None]]


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


async def status(app: FastAPI, path: str, key: str | None = None) -> int:
    async with client_with(app, key) as client:
        response = await client.get(path)
    if response.status_code == 429 and path.startswith("/api/"):
        assert response.json()["code"] == "too_many_exports"
        assert "retry-after" in response.headers
    return response.status_code


@asynccontextmanager
async def running_exports(
    app: FastAPI, count: int, *users: str, parquet: bool = False
) -> AsyncIterator[None]:
    """So many exports of each of these users; without users, of local mode."""
    async with transaction() as session:
        named = await session.scalars(select(User.id).where(User.name.in_(users)))
        identities = [replace(LOCAL_IDENTITY, user_id=user) for user in named] or [LOCAL_IDENTITY]
    async with AsyncExitStack() as held:
        for identity in identities * count:
            quota: AccessLimits = app.state.access.limits
            await held.enter_async_context(quota.export(identity, parquet=parquet))
        yield


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EXPORT_WAIT_SECONDS", 0.0)


EXPENSIVE = (
    f"{SITE}/export",
    f"{SITE}/export?format=jsonl",
    f"{SITE}/export?format=parquet",
    "/api/v3/export",
    "/api/v3/urls",
    f"{SITE}/urls?contains=x",
    f"{SITE}/urls?at_seq=1",
    f"{SITE}/compare?from=1&to=2",
    "/domains/example.com?tab=urls&contains=x",
    "/domains?q=example",
    "/domains?q=example&format=csv",
    "/jobs?format=csv",
    "/urls?contains=x",
)


@pytest.mark.usefixtures("no_wait")
@pytest.mark.parametrize("path", EXPENSIVE)
async def test_a_user_has_four_exports_and_expensive_reads_at_a_time(database: Database, path: str):
    app = application(database)
    ann, bob = await make_key(Scope.READ), await make_key(Scope.READ, user="bob")
    await add_site(urls=1)
    async with running_exports(app, 4, "ann"):
        assert await status(app, path, ann) == 429
        assert await status(app, path, bob) != 429
        assert await status(app, f"{SITE}/urls", ann) == 200
        assert await status(app, "/domains/example.com?tab=urls&contains=", ann) == 200
    assert await status(app, path, ann) != 429


@pytest.mark.usefixtures("no_wait")
@pytest.mark.parametrize(
    "path", [f"{SITE}/urls?sort=url", "/domains/example.com?tab=urls&sort=url"]
)
async def test_only_the_sorting_of_many_listings_is_an_expensive_read(
    database: Database, path: str, monkeypatch: pytest.MonkeyPatch
):
    app = application(database)
    ann = await make_key(Scope.READ)
    await add_site(urls=3)
    async with running_exports(app, 4, "ann"):
        assert await status(app, path, ann) == 200
        monkeypatch.setattr(limits, "MAX_SORTED_AT_ONCE", 3)
        assert await status(app, path, ann) == 200
        monkeypatch.setattr(limits, "MAX_SORTED_AT_ONCE", 2)
        assert await status(app, path, ann) == 429
        # What is not sorted costs nothing.
        monkeypatch.setattr(limits, "MAX_SORTED_URLS", 2)
        assert await status(app, path, ann) == 200
    monkeypatch.undo()
    assert await status(app, path, ann) == 200


@pytest.mark.usefixtures("no_wait")
async def test_all_users_together_have_sixteen_exports_at_a_time(database: Database):
    app = application(database)
    keys = [await make_key(Scope.READ, user=name) for name in "abcde"]
    await add_site(urls=1)
    async with running_exports(app, 4, *"abcd"):
        assert await status(app, f"{SITE}/export", keys[4]) == 429
    async with running_exports(app, 4, *"abc"):
        assert await status(app, f"{SITE}/export", keys[4]) == 200


@pytest.mark.usefixtures("no_wait")
async def test_in_local_mode_exports_are_limited_too(app: FastAPI):
    await add_site(urls=1)
    async with running_exports(app, 4):
        assert await status(app, f"{SITE}/export") == 429


@pytest.mark.usefixtures("no_wait")
async def test_one_user_has_at_most_half_of_the_parquet_processes(database: Database):
    app, path = application(database), f"{SITE}/export?format=parquet"
    ann, bob = await make_key(Scope.READ), await make_key(Scope.READ, user="bob")
    carl = await make_key(Scope.READ, user="carl")
    await add_site(urls=1)
    async with running_exports(app, 2, "ann", parquet=True):
        assert await status(app, path, ann) == 429
        assert await status(app, f"{SITE}/export", ann) == 200
        assert await status(app, path, bob) == 200
    async with running_exports(app, 2, "ann", "bob", parquet=True):
        assert await status(app, path, carl) == 429
    for _ in range(5):
        assert await status(app, path, ann) == 200


async def test_an_export_waits_for_its_place_without_a_database_connection(database: Database):
    app = application(database)
    ann = await make_key(Scope.READ)
    await add_site(urls=1)
    async with running_exports(app, 4, "ann"):
        waiting = [asyncio.create_task(status(app, f"{SITE}/export", ann)) for _ in range(15)]
        assert await status(app, f"{SITE}/urls", ann) == 200
        assert not any(task.done() for task in waiting)
    assert await asyncio.gather(*waiting) == [200] * 15


def reader(app: FastAPI, after_part: AfterPart) -> httpx.AsyncClient:
    """A client with which something happens after each part of a response that is not empty."""

    async def watched(scope: AsgiScope, receive: Receive, send: Send) -> None:
        async def send_part(message: Message) -> None:
            await send(message)
            if message.get("body"):
                await after_part(message)

        await app(scope, receive, send_part)

    transport = httpx.ASGITransport(app=watched)
    plain = {"Accept-Encoding": "identity"}
    return httpx.AsyncClient(transport=transport, base_url=BASE_URL, headers=plain)


async def log_out(browser: httpx.AsyncClient, _key: str) -> None:
    await browser.post("/logout")


async def revoke_key(_browser: httpx.AsyncClient, key: str) -> None:
    await revoke(key)


@pytest.mark.parametrize("end_access", [log_out, revoke_key])
async def test_an_export_ends_with_the_access_of_its_reader(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    end_access: Callable[[httpx.AsyncClient, str], Awaitable[None]],
):
    monkeypatch.setattr(exports, "ADMISSION_CHECK_SECONDS", 0.0)
    app, key, parts = application(database), await make_key(Scope.READ), list[bytes]()
    await add_site()

    async def note(message: Message) -> None:
        parts.append(message["body"])
        if len(parts) == 1:
            await end_access(other_tab, key)

    async with client_with(app) as other_tab, reader(app, note) as browser:
        await other_tab.post("/login", data={"key": key})
        browser.cookies = other_tab.cookies
        with pytest.raises(RuntimeError, match="already started") as error:
            await browser.get(f"{SITE}/export", params={"format": "csv"})
    assert isinstance(error.value.__cause__, KeyRequired)
    assert len(b"".join(parts).splitlines()) == 1


async def test_an_export_goes_on_while_its_reader_has_access(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(exports, "ADMISSION_CHECK_SECONDS", 0.0)
    app = application(database)
    await add_site()
    async with client_with(app, await make_key(Scope.READ)) as client:
        response = await client.get(f"{SITE}/export", params={"format": "csv"})
    assert len(response.text.splitlines()) == 51


async def test_the_process_of_a_parquet_export_ends_with_its_response(app: FastAPI):
    await add_site()
    processes: list[int] = []

    async def hang_up(_message: Message) -> None:
        processes.extend(encoding_processes())
        raise ConnectionResetError

    async with reader(app, hang_up) as client:
        with pytest.raises(ConnectionResetError) as error:
            await client.get(f"{SITE}/export", params={"format": "parquet"})
    # The error refers to the response, so that nothing was closed because it was forgotten.
    assert error.tb is not None
    assert len(processes) == 1
    assert not encoding_processes()
