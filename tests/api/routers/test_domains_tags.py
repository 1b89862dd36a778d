"""Tags of sites over HTTP: set, added and removed, and the filter of every list."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.fixtures.changes import add_changes, add_event, add_published_scan
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_job, add_sitemap, add_urls

DOMAINS = "/api/v3/domains"


async def two_sites() -> None:
    """A site with a tag and one without, each with a URL, a change and a job."""
    async with transaction() as session:
        for name, tags in (("shop.example", ["eu", "shop"]), ("blog.example", [])):
            domain = await add_domain(session, name, tags=tags)
            sitemap = await add_sitemap(session, domain)
            await add_urls(session, sitemap.id, [(1, f"https://{name}/1")])
            await add_job(session, domain)
            scan = await add_published_scan(session, domain)
            await add_changes(session, scan, sitemap, [1])
            await add_event(session, domain, "scan_failed")


async def test_tags_are_added_with_a_site_and_replaced_by_a_change(client: httpx.AsyncClient):
    first = await client.post(DOMAINS, json={"domain": "example.com", "tags": ["Shop", "eu"]})
    assert (first.status_code, first.json()["tags"]) == (201, ["eu", "shop"])
    again = await client.post(DOMAINS, json={"domain": "example.com", "tags": ["de"]})
    assert again.json()["tags"] == ["de", "eu", "shop"]
    changed = await client.patch(f"{DOMAINS}/example.com", json={"tags": ["NEW"]})
    assert changed.json()["tags"] == ["new"]
    assert (await client.get(f"{DOMAINS}/example.com")).json()["tags"] == ["new"]
    cleared = await client.patch(f"{DOMAINS}/example.com", json={"tags": []})
    assert cleared.json()["tags"] == []


async def test_a_site_has_at_most_20_tags_however_often_it_is_added(client: httpx.AsyncClient):
    tags = [f"tag{number:02d}" for number in range(21)]
    await client.post(DOMAINS, json={"domain": "example.com", "tags": tags[:20]})
    refused = await client.post(DOMAINS, json={"domain": "example.com", "tags": tags[20:]})
    assert (refused.status_code, refused.json()["code"]) == (422, "too_many_tags")
    assert (await client.get(f"{DOMAINS}/example.com")).json()["tags"] == tags[:20]
    again = await client.post(DOMAINS, json={"domain": "example.com", "tags": tags[:1]})
    assert again.json()["tags"] == tags[:20]


async def test_a_site_that_is_only_registered_gets_its_tags(client: httpx.AsyncClient):
    body = {"domain": "example.com", "watch": False, "tags": ["later"]}
    assert (await client.post(DOMAINS, json=body)).json()["tags"] == ["later"]


@pytest.mark.parametrize("tags", [["a b"], [""], ["x" * 51], ["x"] * 21, "shop", [5], None])
async def test_invalid_tags_are_refused(client: httpx.AsyncClient, tags: Any):
    body = {"domain": "example.com", "tags": tags}
    assert (await client.post(DOMAINS, json=body)).status_code == 422


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/api/v3/domains", ["shop.example"]),
        ("/api/v3/jobs", ["shop.example"] * 2),
        ("/api/v3/urls", ["shop.example"]),
        ("/api/v3/changes", ["shop.example"] * 2),
    ],
)
async def test_a_tag_is_a_filter_of_the_lists_over_all_sites(
    client: httpx.AsyncClient, path: str, found: list[str]
):
    await two_sites()
    answer = await client.get(path, params={"tag": "SHOP"})
    assert [item["domain"] for item in answer.json()["items"]] == found
    every = (await client.get(path)).json()["items"]
    assert len(every) == 2 * len(found)
    assert (await client.get(path, params={"tag": "none"})).json()["items"] == []
    assert (await client.get(path, params={"tag": "a b"})).status_code == 422


async def test_a_cursor_belongs_to_the_tag_of_its_list(client: httpx.AsyncClient):
    await two_sites()
    async with transaction() as session:
        await add_domain(session, "zoo.example", tags=["shop"])
    params = {"tag": "shop", "limit": "1"}
    cursor = (await client.get(DOMAINS, params=params)).json()["next_cursor"]
    later = await client.get(DOMAINS, params={**params, "cursor": cursor})
    assert [item["domain"] for item in later.json()["items"]] == ["zoo.example"]
    other = await client.get(DOMAINS, params={"tag": "eu", "cursor": cursor})
    assert other.status_code == 400


@pytest.mark.parametrize("what", ["urls", "changes"])
async def test_a_tag_is_a_filter_of_exports(client: httpx.AsyncClient, what: str):
    await two_sites()
    params = {"what": what, "format": "jsonl", "tag": "shop"}
    text = (await client.get("/api/v3/export", params=params)).text
    assert "shop.example" in text
    assert "blog.example" not in text


async def test_a_tag_is_a_filter_of_the_atom_feed(client: httpx.AsyncClient):
    await two_sites()
    text = (await client.get("/api/v3/changes.atom", params={"tag": "shop"})).text
    assert text.count("<entry>") == 2
    assert "blog.example" not in text


async def test_lists_of_one_site_have_no_such_filter(client: httpx.AsyncClient):
    await two_sites()
    for path in ("urls", "changes", "export", "changes.atom"):
        answer = await client.get(f"{DOMAINS}/shop.example/{path}", params={"tag": "shop"})
        assert answer.status_code == 422
