"""The change feed over HTTP: pages, filters, waiting, and reading it after the list of URLs."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import update

from siteatlas.access.keys import Scope
from siteatlas.storage.models import FeedHead
from siteatlas.storage.session import Database
from tests.fixtures.access import application, client_with, make_key
from tests.fixtures.changes import add_changes, add_event, add_published_scan
from tests.fixtures.connections import CountedConnections
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_sitemap, add_urls
from tests.fixtures.waiting import wait_until

FEED = "/api/v3/changes"
OF_SITE = "/api/v3/domains/example.com/changes"


async def publish(name: str = "example.com", hashes: tuple[int, ...] = (1,)) -> None:
    """A site whose first published scan has changes."""
    async with transaction() as session:
        domain = await add_domain(session, name)
        sitemap = await add_sitemap(session, domain)
        scan = await add_published_scan(session, domain)
        await add_event(session, domain, "sitemap_added", scan, sitemap_id=sitemap.id)
        await add_changes(
            session, scan, sitemap, hashes, after={"lastmod": "2025-11-15T00:00:00+00:00"}
        )


async def test_an_event_has_the_promised_fields(client: httpx.AsyncClient):
    await publish()
    page = (await client.get(FEED, params={"kinds": "added"})).json()
    assert {"from_seq", "to_seq", "next_cursor", "at_head", "feed_id", "retained_from"} <= set(page)
    (event,) = page["items"]
    promised = {"id", "seq", "kind", "domain", "url", "sitemap", "previous_sitemap", "scan_id"}
    assert promised | {"not_before", "not_after", "before", "after", "fields", "evidence"} <= set(
        event
    )
    assert (event["seq"], event["url"]) == (1, "https://example.com/1")


@pytest.mark.parametrize(
    ("stored", "lastmod", "text"),
    [
        ({"lastmod": "2025-11-15T00:00:00.000000+00:00"}, "2025-11-15T00:00:00Z", "2025-11-15"),
        (
            {"lastmod": "2025-11-15T00:00:00.000000+00:00", "lastmod_text": ""},
            "2025-11-15T00:00:00Z",
            None,
        ),
        ({"lastmod": "2025-11-15T10:30:00.000000+00:00"}, "2025-11-15T10:30:00Z", None),
        ({"lastmod_text": "soon"}, None, "soon"),
        ({"priority": 0.5}, None, None),
    ],
)
async def test_dates_have_the_same_form_as_in_the_list_of_urls(
    client: httpx.AsyncClient, stored: dict[str, object], lastmod: str | None, text: str | None
):
    async with transaction() as session:
        domain = await add_domain(session)
        sitemap = await add_sitemap(session, domain)
        scan = await add_published_scan(session, domain)
        await add_changes(session, scan, sitemap, [1], after=stored)
        moment = stored.get("lastmod")
        listed: dict[str, Any] = {
            "lastmod": datetime.fromisoformat(str(moment)) if moment else None
        }
        listed["lastmod_text"] = stored.get("lastmod_text")
        await add_urls(session, sitemap.id, [(1, "https://example.com/1")], **listed)
    (event,) = (await client.get(FEED)).json()["items"]
    (url,) = (await client.get("/api/v3/domains/example.com/urls")).json()["items"]
    shown = (event["after"].get("lastmod"), event["after"].get("lastmod_text"))
    assert shown == (url["lastmod"], url["lastmod_text"]) == (lastmod, text)


async def test_the_feed_is_read_to_its_head_by_cursor(client: httpx.AsyncClient):
    await publish(hashes=tuple(range(5)))
    kinds, cursor = list[str](), None
    while True:
        query = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = (await client.get(FEED, params=query)).json()
        kinds += [event["kind"] for event in page["items"]]
        cursor = page["next_cursor"]
        if page["at_head"]:
            break
    assert kinds == ["sitemap_added", *["added"] * 5]
    assert (await client.get(FEED, params={"cursor": cursor})).json()["items"] == []


async def test_the_feed_of_a_site_leaves_out_others(client: httpx.AsyncClient):
    await publish()
    await publish("other.example")
    page = (await client.get(OF_SITE)).json()
    assert {event["domain"] for event in page["items"]} == {"example.com"}
    assert (page["to_seq"], page["at_head"]) == (2, True)
    unknown = await client.get("/api/v3/domains/unknown.example/changes")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "domain_not_found")


@pytest.mark.parametrize(
    "query",
    [
        {"kinds": "added,nothing"},
        {"kinds": ""},
        {"after": "0", "cursor": "x"},
        {"after": "-1"},
        {"wait": "31"},
        {"format": "xml"},
        {"since": "0"},
    ],
)
async def test_a_wrong_query_is_refused(client: httpx.AsyncClient, query: dict[str, str]):
    response = await client.get(FEED, params=query)
    assert (response.status_code, response.json()["code"]) == (422, "input_invalid")


async def test_an_expired_position_is_answered_with_the_oldest_one(client: httpx.AsyncClient):
    await publish()
    await publish("other.example")
    async with transaction() as session:
        await session.execute(update(FeedHead).values(retained_from=1))
    response = await client.get(FEED, params={"after": "0"})
    assert (response.status_code, response.json()["code"]) == (410, "cursor_expired")
    page = await client.get(FEED, params={"cursor": response.json()["earliest_cursor"]})
    assert (page.json()["from_seq"], page.json()["retained_from"]) == (2, 1)


@pytest.mark.parametrize(
    ("headers", "query"), [({"Accept": "application/jsonl"}, {}), ({}, {"format": "jsonl"})]
)
async def test_json_lines_end_with_a_line_that_says_so(
    client: httpx.AsyncClient, headers: dict[str, str], query: dict[str, str]
):
    await publish()
    response = await client.get(FEED, headers=headers, params=query)
    assert response.headers["content-type"] == "application/jsonl"
    *events, end = map(json.loads, response.text.splitlines())
    page = (await client.get(FEED)).json()
    assert events == page.pop("items")
    assert end == {"end": True, "count": 2, **page}


async def test_a_page_at_the_head_is_not_sent_twice(client: httpx.AsyncClient):
    await publish()
    first = await client.get(FEED)
    tag = {"If-None-Match": first.headers["etag"]}
    again = await client.get(FEED, headers=tag)
    assert (again.status_code, again.content) == (304, b"")
    weak = {"If-None-Match": f'"other", W/{first.headers["etag"]}'}
    assert (await client.get(FEED, headers=weak)).status_code == 304
    assert (await client.get(FEED, params={"kinds": "added"}, headers=tag)).status_code == 200
    await publish("other.example")
    assert (await client.get(FEED, headers=tag)).status_code == 200
    assert "etag" not in (await client.get(FEED, params={"limit": "1"})).headers


async def test_a_request_waits_for_the_next_publication_without_a_connection(
    client: httpx.AsyncClient, app: FastAPI, database: Database
):
    counted = CountedConnections(database)
    waiting = asyncio.create_task(client.get(FEED, params={"after": "0", "wait": "20"}))
    await wait_until(lambda: app.state.api.feed.waiting == 1 and counted.checked_out == 0)
    await publish()
    page = (await asyncio.wait_for(waiting, 5)).json()
    assert [event["kind"] for event in page["items"]] == ["sitemap_added", "added"]
    assert (page["from_seq"], page["to_seq"]) == (1, 1)


@pytest.mark.slow
async def test_a_request_waits_on_when_only_other_sites_are_published(
    client: httpx.AsyncClient, app: FastAPI
):
    await publish()
    query = {"after": "1", "wait": "20"}
    waiting = asyncio.create_task(client.get(OF_SITE, params=query))
    await wait_until(lambda: app.state.api.feed.waiting == 1)
    await publish("other.example")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(waiting, 1.2)


async def test_waiting_ends_in_time_with_an_empty_page(client: httpx.AsyncClient):
    page = (await client.get(FEED, params={"wait": "0.1"})).json()
    assert (page["items"], page["at_head"]) == ([], True)


async def test_waiting_ends_when_the_service_stops(client: httpx.AsyncClient, app: FastAPI):
    waiting = asyncio.create_task(client.get(FEED, params={"wait": "20"}))
    await wait_until(lambda: app.state.api.feed.waiting == 1)
    app.state.api.feed.close()
    response = await asyncio.wait_for(waiting, 2)
    assert (response.status_code, response.json()["items"]) == (200, [])
    late = await asyncio.wait_for(client.get(FEED, params={"wait": "20"}), 2)
    assert late.json()["items"] == []


async def test_the_number_of_waiting_requests_is_limited(database: Database):
    app = application(database, max_connections=5)
    async with client_with(app) as client:
        first = asyncio.create_task(client.get(FEED, params={"wait": "20"}))
        await wait_until(lambda: app.state.api.feed.waiting == 1)
        second = await asyncio.wait_for(client.get(FEED, params={"wait": "20"}), 2)
        assert (first.done(), second.json()["items"]) == (False, [])
        first.cancel()


async def test_the_waiting_requests_of_one_user_leave_room_for_others(database: Database):
    app = application(database, max_connections=40)
    ann, bob = await make_key(Scope.READ), await make_key(Scope.READ, user="bob")
    async with client_with(app, ann) as client, client_with(app, bob) as other:
        waiting = [asyncio.create_task(client.get(FEED, params={"wait": "20"})) for _ in range(2)]
        await wait_until(lambda: app.state.api.feed.waiting == 2)
        refused = await asyncio.wait_for(client.get(FEED, params={"wait": "20"}), 2)
        assert refused.json()["items"] == []
        waiting.append(asyncio.create_task(other.get(FEED, params={"wait": "20"})))
        await wait_until(lambda: app.state.api.feed.waiting == 3)
        app.state.api.feed.close()
        await asyncio.gather(*waiting)


async def test_all_requests_that_may_wait_can_be_those_of_the_local_user(database: Database):
    app = application(database, max_connections=40)
    async with client_with(app) as client:
        waiting = [asyncio.create_task(client.get(FEED, params={"wait": "20"})) for _ in range(8)]
        await wait_until(lambda: app.state.api.feed.waiting == 8)
        app.state.api.feed.close()
        answers = await asyncio.gather(*waiting)
    assert [answer.status_code for answer in answers] == [200] * 8


@pytest.mark.parametrize("path", ["/api/v3/domains/example.com/urls", "/api/v3/sitemaps/{}/urls"])
async def test_the_first_page_of_urls_says_where_to_continue_in_the_feed(
    client: httpx.AsyncClient, path: str
):
    async with transaction() as session:
        domain = await add_domain(session)
        sitemap = await add_sitemap(session, domain)
        await add_urls(session, sitemap.id, [(n, f"https://example.com/{n}") for n in range(3)])
        await add_published_scan(session, domain)
    first = (await client.get(path.format(sitemap.id), params={"limit": "2"})).json()
    query = {"limit": "2", "cursor": first["next_cursor"]}
    second = (await client.get(path.format(sitemap.id), params=query)).json()
    assert (first["as_of_seq"], second["as_of_seq"]) == (1, None)
    assert (await client.get(FEED, params={"after": "1"})).json()["at_head"]


async def test_a_scan_says_what_it_changed(client: httpx.AsyncClient):
    async with transaction() as session:
        domain = await add_domain(session)
        counts = {"added": 2, "removed": 1}
        await add_published_scan(session, domain, scope="light", change_counts=counts)
    (scan,) = (await client.get("/api/v3/domains/example.com/scans")).json()["items"]
    assert (scan["scope"], scan["change_counts"], scan["published_seq"]) == ("light", counts, 1)
