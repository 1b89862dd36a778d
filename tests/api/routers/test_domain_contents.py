"""What is known of a site: documents, URLs, candidates and scans."""

from __future__ import annotations

from datetime import UTC, datetime
from types import ModuleType
from typing import Any
from uuid import uuid4

import httpx
import pytest

from siteatlas.catalog import paging as page_reading
from siteatlas.catalog import url_lists as url_history
from siteatlas.catalog import url_lists as urls
from siteatlas.catalog.urls import url_hash
from siteatlas.storage.models import RobotsFile, SitemapLink
from tests.fixtures.database import transaction
from tests.fixtures.records import (
    add_candidate,
    add_domain,
    add_job,
    add_scan,
    add_sitemap,
    add_urls,
)

SITE = "/api/v3/domains/example.com"


async def items(client: httpx.AsyncClient, path: str, **query: str) -> list[dict[str, object]]:
    response = await client.get(path, params=query)
    assert response.status_code == 200, response.text
    found: list[dict[str, object]] = response.json()["items"]
    return found


@pytest.mark.criterion("content-stored")
async def test_a_document_has_the_promised_fields(client: httpx.AsyncClient):
    async with transaction() as session:
        sitemap = await add_sitemap(session, await add_domain(session), url_count=3)
    (listed,) = await items(client, f"{SITE}/sitemaps")
    shown = (await client.get(f"/api/v3/sitemaps/{sitemap.id}")).json()
    assert listed == shown
    promised = {"id", "url", "type", "discovery_method", "status", "job_id", "created_by"}
    assert promised | {"created_at", "url_count", "error_code"} <= set(shown)
    assert (shown["domain"], shown["url_count"]) == ("example.com", 3)


@pytest.mark.criterion("content-stored")
async def test_a_document_names_its_parents(client: httpx.AsyncClient):
    async with transaction() as session:
        domain = await add_domain(session)
        parent = await add_sitemap(session, domain, "index.xml", type="index")
        child = await add_sitemap(session, domain, "child.xml")
        session.add(SitemapLink(parent_id=parent.id, child_id=child.id))
    shown = (await client.get(f"/api/v3/sitemaps/{child.id}")).json()
    assert shown["parent_ids"] == [str(parent.id)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"type": "index"}, ["index.xml"]),
        ({"status": "failed"}, ["bad.xml"]),
        ({"status": "error"}, ["bad.xml"]),
        ({"status": "complete", "type": "standard"}, ["good.xml"]),
    ],
)
async def test_documents_can_be_filtered(
    client: httpx.AsyncClient, query: dict[str, str], expected: list[str]
):
    async with transaction() as session:
        domain = await add_domain(session)
        await add_sitemap(session, domain, "index.xml", type="index")
        await add_sitemap(session, domain, "bad.xml", status="failed", error_code="timeout")
        await add_sitemap(session, domain, "good.xml")
    found = await items(client, f"{SITE}/sitemaps", **query)
    assert [str(item["url"]).rsplit("/", 1)[1] for item in found] == expected


async def test_pages_of_2500_urls_neither_skip_nor_repeat(client: httpx.AsyncClient):
    async with transaction() as session:
        domain = await add_domain(session)
        for n in range(5):
            sitemap = await add_sitemap(session, domain, f"{n}.xml")
            rows = [(k * 7919 - 10**6, f"https://example.com/{n}/{k}") for k in range(500)]
            await add_urls(session, sitemap.id, rows)
    found: list[str] = []
    query: dict[str, str] = {"limit": "700"}
    while True:
        page = (await client.get(f"{SITE}/urls", params=query)).json()
        found += [item["url"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert len(found) == 2500
    assert len(set(found)) == 2500


async def test_a_url_has_exactly_the_promised_fields(client: httpx.AsyncClient):
    async with transaction() as session:
        sitemap = await add_sitemap(session, await add_domain(session))
        await add_urls(session, sitemap.id, [(1, "https://example.com/a")], priority=0.8)
    (listed,) = await items(client, f"{SITE}/urls")
    promised = "url lastmod changefreq priority sitemap sitemap_id first_seen_at removed_at extras"
    promised += " lastmod_text domain"
    assert sorted(listed) == sorted(promised.split())
    assert (listed["priority"], listed["sitemap"]) == (0.8, sitemap.url)


async def test_urls_can_be_searched(client: httpx.AsyncClient):
    async with transaction() as session:
        sitemap = await add_sitemap(session, await add_domain(session))
        listed = [(1, "https://example.com/blog/a"), (2, "https://example.com/shop/b")]
        await add_urls(session, sitemap.id, listed)
    answer = (await client.get(f"{SITE}/urls", params={"contains": "/SHOP"})).json()
    assert [item["url"] for item in answer["items"]] == ["https://example.com/shop/b"]
    assert (answer["examined"], answer["next_cursor"]) == (2, None)


async def test_urls_are_sorted_page_by_page(client: httpx.AsyncClient):
    async with transaction() as session:
        sitemap = await add_sitemap(session, await add_domain(session))
        for day, name in enumerate("cab", 1):
            row = [(day, f"https://example.com/{name}")]
            await add_urls(session, sitemap.id, row, lastmod=datetime(2026, 3, day, tzinfo=UTC))
        await add_urls(session, sitemap.id, [(4, "https://example.com/d")])
    for sort, expected in {
        "url": "abcd",
        "-url": "dcba",
        "lastmod": "cabd",
        "-lastmod": "bacd",
    }.items():
        found = ""
        cursor: dict[str, Any] = {}
        for _ in range(2):
            query = {"sort": sort, "limit": "2"} | cursor
            page = (await client.get(f"{SITE}/urls", params=query)).json()
            found += "".join(item["url"][-1] for item in page["items"])
            cursor = {"cursor": page["next_cursor"]}
        assert (found, cursor) == (expected, {"cursor": None})


async def test_a_site_with_too_many_listings_is_not_sorted(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    await two_sites()
    monkeypatch.setattr(urls, "MAX_SORTED_URLS", 1)
    response = await client.get(f"{SITE}/urls", params={"sort": "url"})
    assert (response.status_code, response.json()["code"]) == (422, "too_many_to_sort")
    assert "more than 100,000 listings cannot be sorted" in response.json()["detail"]
    assert (await client.get(f"{SITE}/urls")).status_code == 200


async def test_the_urls_of_one_document_are_its_own(client: httpx.AsyncClient):
    async with transaction() as session:
        domain = await add_domain(session)
        sitemap = await add_sitemap(session, domain, "a.xml")
        other = await add_sitemap(session, domain, "b.xml")
        await add_urls(session, sitemap.id, [(1, "https://example.com/a")])
        await add_urls(session, other.id, [(1, "https://example.com/b")])
    found = await items(client, f"/api/v3/sitemaps/{sitemap.id}/urls")
    assert [item["url"] for item in found] == ["https://example.com/a"]


@pytest.mark.parametrize("rest", ["", "/urls"])
async def test_an_unknown_document_is_404_and_a_malformed_id_422(
    client: httpx.AsyncClient, rest: str
):
    unknown = await client.get(f"/api/v3/sitemaps/{uuid4()}{rest}")
    malformed = await client.get(f"/api/v3/sitemaps/7{rest}")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "sitemap_not_found")
    assert (malformed.status_code, malformed.json()["code"]) == (422, "input_invalid")


async def test_candidates_are_listed_with_their_verdict(client: httpx.AsyncClient):
    async with transaction() as session:
        domain = await add_domain(session)
        await add_candidate(session, domain, "sitemap.xml", verdict="accepted", reason=None)
        await add_candidate(session, domain, "sitemap_index.xml")
    assert len(await items(client, f"{SITE}/candidates")) == 2
    (rejected,) = await items(client, f"{SITE}/candidates", verdict="rejected")
    assert (rejected["reason"], rejected["http_status"]) == ("http_not_found", 404)


async def test_scans_are_listed_newest_first(client: httpx.AsyncClient):
    async with transaction() as session:
        domain = await add_domain(session)
        jobs = [await add_job(session, domain, status="completed") for _ in range(3)]
        for job in jobs:
            await add_scan(session, domain, job, state="published", reasons=["max_pages"])
    first = (await client.get(f"{SITE}/scans", params={"limit": 2})).json()
    query = {"limit": 2, "cursor": first["next_cursor"]}
    second = (await client.get(f"{SITE}/scans", params=query)).json()
    found = [item["job_id"] for page in (first, second) for item in page["items"]]
    assert found == [str(job.job_id) for job in reversed(jobs)]
    assert first["items"][0]["reasons"] == ["max_pages"]


async def test_every_version_of_robots_txt_is_listed_with_what_it_changed(
    client: httpx.AsyncClient,
):
    async with transaction() as session:
        domain = await add_domain(session)
        for scheme, text in (("https", "a\n"), ("http", "x\n"), ("https", "a\nb\n")):
            origin = f"{scheme}://example.com"
            values = {"domain_id": domain.id, "origin": origin, "content_hash": text}
            session.add(RobotsFile(**values, content=text, http_status=200))
            await session.flush()
    found = await items(client, f"{SITE}/robots")
    assert [(version["content"], version["diff"]) for version in found] == [
        ("a\nb\n", " a\n+b"),
        ("x\n", None),
        ("a\n", None),
    ]
    first = (await client.get(f"{SITE}/robots", params={"limit": "2"})).json()
    rest = await items(client, f"{SITE}/robots", cursor=first["next_cursor"])
    assert first["items"] + rest == found


ROBOTS = """\
User-agent: *
Content-Signal: search=yes, ai-train=maybe
Disallow: /shop/cart/

User-agent: GPTBot
Disallow: /shop/
"""


async def test_the_policy_judges_the_sections_of_a_site_for_every_agent(client: httpx.AsyncClient):
    async with transaction() as session:
        domain = await add_domain(session, origin="https://example.com")
        counts = {"sections": {"/shop/": 6, "/": 3}, "other": 0, "months": {}}
        counts |= {"other_months": 0, "undated": 9}
        await add_sitemap(session, domain, url_breakdown=counts)
    nothing = (await client.get(f"{SITE}/policy")).json()
    async with transaction() as session:
        for origin, text in (("https", "old"), ("https", ROBOTS), ("http", "User-agent: *")):
            values = {"domain_id": domain.id, "origin": f"{origin}://example.com"}
            session.add(RobotsFile(**values, content_hash=text, content=text, http_status=200))
            await session.flush()
    found = (await client.get(f"{SITE}/policy")).json()
    assert (found["origin"], found["paths"]) == ("https://example.com", ["/", "/shop/"])
    agents = {row["agent"]: row for row in found["agents"]}
    assert len(agents) > 40
    assert agents["GPTBot"]["purpose"] == "ai_training"
    whole, shop = agents["GPTBot"]["decisions"]
    assert (whole["allowed"], whole["line"], whole["exceptions"]) == (True, None, 1)
    assert (shop["allowed"], shop["line"], shop["rule"]) == (False, 6, "Disallow: /shop/")
    assert [row["exceptions"] for row in agents["Bingbot"]["decisions"]] == [1, 1]
    (usage,) = found["usage"]
    assert (usage["line"], usage["values"]) == (2, {"search": "yes"})
    assert usage["invalid"] == ["“ai-train=maybe”: the value must be yes or no."]
    assert (nothing["origin"], nothing["agents"]) == (None, [])


async def test_the_policy_can_be_asked_for_one_agent_and_one_path(client: httpx.AsyncClient):
    async with transaction() as session:
        domain = await add_domain(session)
        values = {"domain_id": domain.id, "origin": "https://example.com", "content_hash": "x"}
        session.add(RobotsFile(**values, content=ROBOTS, http_status=200))
    asked = {"agent": "gptbot", "path": "https://example.com/shop/cart/?item=1"}
    found = (await client.get(f"{SITE}/policy", params=asked)).json()
    (row,) = found["agents"]
    assert (row["agent"], row["group"], found["paths"]) == (
        "GPTBot",
        "gptbot",
        ["/shop/cart/?item=1"],
    )
    assert [one["line"] for one in row["decisions"]] == [6]
    (other,) = (await client.get(f"{SITE}/policy?agent=NewBot&path=/shop/cart/")).json()["agents"]
    assert (other["purpose"], other["group"]) == (None, "*")
    assert [one["line"] for one in other["decisions"]] == [3]
    assert (await client.get("/api/v3/domains/none.example/policy")).status_code == 404
    assert (await client.get(f"{SITE}/policy?agent=")).status_code == 422


async def two_sites(path: str = "a") -> None:
    """Two sites with one URL each that contains the path, and one other."""
    async with transaction() as session:
        for name in ("example.com", "example.org"):
            sitemap = await add_sitemap(session, await add_domain(session, name))
            rows = [(url_hash(url), url) for url in (f"https://{name}/{path}", f"https://{name}/z")]
            await add_urls(session, sitemap.id, rows, lastmod=datetime(2026, 1, 31, tzinfo=UTC))


async def test_urls_of_all_sites_are_searched(client: httpx.AsyncClient):
    await two_sites()
    found = await items(client, "/api/v3/urls", contains="/A")
    assert {item["domain"] for item in found} == {"example.com", "example.org"}
    (exact,) = await items(client, "/api/v3/urls", url="https://example.org/a")
    assert (exact["domain"], exact["url"]) == ("example.org", "https://example.org/a")


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"lastmod_from": "2026-01-31"}, 2),
        ({"lastmod_from": "2026-01-31T00:00:01Z"}, 0),
        ({"lastmod_to": "2026-01-31T00:00:00+01:00"}, 0),
        ({"lastmod_to": "2026-02-01", "prefix": "https://example.com/a"}, 1),
        ({"has": "images,news"}, 0),
        ({"first_seen_from": "2001-01-01"}, 2),
        ({"sitemap": "https://example.com/sitemap.xml"}, 2),
        ({"sitemap": "https://example.com/other.xml"}, 0),
    ],
)
async def test_the_filters_of_urls_are_parameters(
    client: httpx.AsyncClient, query: dict[str, str], count: int
):
    await two_sites()
    assert len(await items(client, f"{SITE}/urls", **query)) == count


@pytest.mark.parametrize(
    "query", [{"has": "pictures"}, {"lastmod_from": "yesterday"}, {"prefix": ""}, {"sort": "size"}]
)
async def test_a_filter_that_does_not_exist_is_refused(
    client: httpx.AsyncClient, query: dict[str, str]
):
    await two_sites()
    response = await client.get(f"{SITE}/urls", params=query)
    assert (response.status_code, response.json()["code"]) == (422, "input_invalid")


async def test_the_history_of_a_url_has_its_entries(client: httpx.AsyncClient):
    await two_sites()
    response = await client.get(f"{SITE}/urls/history", params={"url": "https://example.com/a"})
    answer = response.json()
    assert (answer["items"], answer["next_cursor"]) == ([], None)
    assert [entry["url"] for entry in answer["entries"]] == ["https://example.com/a"]
    assert answer["entries_cursor"] is None
    assert (await client.get(f"{SITE}/urls/history")).status_code == 422


@pytest.mark.parametrize(
    ("module", "limit"),
    [(urls, "MAX_EXAMINED"), (url_history, "MAX_LIMIT"), (page_reading, "MAX_PAGE_BYTES")],
)
async def test_entries_of_a_url_that_do_not_fit_its_history_are_in_the_list_of_urls(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, module: ModuleType, limit: str
):
    monkeypatch.setattr(module, limit, 1)
    wanted = {"url": "https://example.com/a"}
    async with transaction() as session:
        domain = await add_domain(session)
        for name in "bcd":
            sitemap = await add_sitemap(session, domain, name)
            await add_urls(session, sitemap.id, [(url_hash(wanted["url"]), wanted["url"])])
    answer = (await client.get(f"{SITE}/urls/history", params=wanted)).json()
    found, cursor = [entry["sitemap"] for entry in answer["entries"]], answer["entries_cursor"]
    while cursor is not None:
        params = {**wanted, "state": "all", "cursor": cursor}
        page = (await client.get(f"{SITE}/urls", params=params)).json()
        found += [entry["sitemap"] for entry in page["items"]]
        cursor = page["next_cursor"]
    assert len(answer["entries"]) == 1
    assert sorted(found) == [f"https://example.com/{name}" for name in "bcd"]


async def test_sections_are_counted(client: httpx.AsyncClient):
    counts = {"sections": {"/a/": 2}, "other": 1, "months": {}, "other_months": 0, "undated": 3}
    async with transaction() as session:
        domain = await add_domain(session)
        await add_sitemap(session, domain, url_breakdown=counts)
    response = await client.get(f"{SITE}/sections", params={"limit": 1})
    assert response.json() == {
        "url_count": 3,
        "sitemap_count": 1,
        "complete": True,
        "sections": [{"section": "/a/", "url_count": 2}],
        "other_url_count": 1,
        "months": [],
        "other_month_url_count": 0,
        "undated_url_count": 3,
    }
    for limit in ("0", "201", "x"):
        refused = await client.get(f"{SITE}/sections", params={"limit": limit})
        assert (refused.status_code, refused.json()["code"]) == (422, "input_invalid")
