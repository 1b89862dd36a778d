"""Request headers of a site over HTTP and in the dashboard: set by its owner, shown by name."""

from __future__ import annotations

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI
from sqlalchemy import text

from siteatlas.access.keys import Scope
from siteatlas.storage.models import AuditEvent, Domain, SiteHeaders
from siteatlas.storage.session import Database
from tests.fixtures.access import client_with, make_key
from tests.fixtures.database import transaction
from tests.fixtures.pipeline import rows_of
from tests.fixtures.records import add_domain

HEADERS = "/api/v3/domains/example.com/headers"
ORIGIN = "https://www.example.com"
SECRET = "Bearer 5ecret-of-the-site"
BODY = {"origin": f"{ORIGIN}/", "headers": {"Authorization": SECRET, "X-Key": SECRET}}
SHOWN = {"origin": ORIGIN, "names": ["Authorization", "X-Key"]}


@pytest_asyncio.fixture
async def known(database: Database) -> Domain:
    async with transaction() as session:
        return await add_domain(session)


@pytest.mark.usefixtures("known")
async def test_headers_are_shown_by_name_only(client: httpx.AsyncClient):
    assert (await client.get(HEADERS)).json() is None
    answer = await client.put(HEADERS, json=BODY)
    assert (answer.status_code, answer.json()) == (200, SHOWN)
    assert (await client.get(HEADERS)).json() == SHOWN
    page = await client.get("/domains/example.com?tab=settings")
    assert "Authorization, X-Key" in page.text
    assert "Everyone with the scope read sees what they open" in page.text
    assert SECRET not in page.text + answer.text


@pytest.mark.usefixtures("known")
async def test_new_headers_replace_all_and_none_removes_them(client: httpx.AsyncClient):
    await client.put(HEADERS, json=BODY)
    await client.put(HEADERS, json={"origin": "http://example.com:8080", "headers": {"A": "b"}})
    (row,) = await rows_of(SiteHeaders)
    assert (row.origin, row.headers) == ("http://example.com:8080", {"A": "b"})
    answer = await client.put(HEADERS, json={"origin": ORIGIN, "headers": {}})
    assert (answer.json(), await rows_of(SiteHeaders)) == (None, [])


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("origin", "headers"),
    [
        (ORIGIN, {"Host": "x"}),
        (ORIGIN, {"Content-Length": "1"}),
        (ORIGIN, {"transfer-encoding": "chunked"}),
        (ORIGIN, {"Connection": "close"}),
        (ORIGIN, {"Proxy-Authorization": SECRET}),
        (ORIGIN, {"X-Key": f"{SECRET}\r\nX-Other: x"}),
        (ORIGIN, {"X-Key": f"{SECRET}\x00"}),
        (ORIGIN, {"X Key": SECRET}),
        (ORIGIN, {"X-Key": SECRET, "x-key": SECRET}),
        (ORIGIN, {"X-Key": SECRET + "x" * 9000}),
        (ORIGIN, {f"X-{n}": SECRET + "x" * 2500 for n in range(5)}),
        (ORIGIN, {f"X-{n}": SECRET for n in range(21)}),
        ("https://other.example", {"X-Key": SECRET}),
        ("https://example.com.evil.org", {"X-Key": SECRET}),
        (f"{ORIGIN}/path", {"X-Key": SECRET}),
        ("https://me:pw@example.com", {"X-Key": SECRET}),
        ("www.example.com", {"X-Key": SECRET}),
        ("ftp://example.com", {"X-Key": SECRET}),
    ],
)
async def test_what_cannot_be_sent_is_refused_without_repeating_it(
    client: httpx.AsyncClient, origin: str, headers: dict[str, str]
):
    await client.put(HEADERS, json=BODY)
    answer = await client.put(HEADERS, json={"origin": origin, "headers": headers})
    assert answer.status_code == 422
    assert "5ecret" not in answer.text
    (row,) = await rows_of(SiteHeaders)
    assert row.origin == ORIGIN


async def test_only_the_owner_or_an_admin_sets_headers_and_no_trail_has_them(
    app: FastAPI, database: Database
):
    clients = {
        name: client_with(app, await make_key(Scope.READ, *more, user=name))
        for name, more in {
            "ann": (Scope.SCAN,),
            "bob": (Scope.SCAN,),
            "ada": (Scope.ADMIN,),
            "eve": (),
        }.items()
    }
    await clients["ann"].post("/api/v3/domains", json={"domain": "example.com"})
    statuses = {}
    for name, one in clients.items():
        statuses[name] = (await one.put(HEADERS, json=BODY)).status_code
        assert SECRET not in (await one.get(HEADERS)).text
        await one.aclose()
    assert statuses == {"ann": 200, "bob": 403, "ada": 200, "eve": 403}
    async with transaction() as session:
        for table in ("audit_events", "jobs", "feed_events", "domains"):
            rows = await session.execute(text(f"SELECT t::text FROM {table} t"))
            assert "5ecret" not in str(rows.all())
    assert len(await rows_of(AuditEvent)) == 5


@pytest.mark.usefixtures("known")
async def test_the_form_of_the_settings_sets_and_removes_headers(client: httpx.AsyncClient):
    form = {"origin": ORIGIN, "headers": f"Authorization: {SECRET}\r\nX-Key: 1"}
    answer = await client.post("/domains/example.com/headers", data=form)
    assert answer.headers["location"] == "/domains/example.com?tab=settings&saved=1"
    (row,) = await rows_of(SiteHeaders)
    assert row.headers == {"Authorization": SECRET, "X-Key": "1"}
    bad = await client.post(
        "/domains/example.com/headers", data=form | {"headers": f"Host: {SECRET}"}
    )
    assert bad.status_code == 422
    assert SECRET not in bad.text
    await client.post("/domains/example.com/headers", data=form | {"headers": ""})
    assert await rows_of(SiteHeaders) == []


@pytest.mark.usefixtures("known")
async def test_a_removed_site_forgets_its_headers_at_once(client: httpx.AsyncClient):
    await client.put(HEADERS, json=BODY)
    await client.delete("/api/v3/domains/example.com")
    assert await rows_of(SiteHeaders) == []
