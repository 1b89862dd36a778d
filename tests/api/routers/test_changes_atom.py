"""The Atom feed over HTTP: the newest events first, at most 100, and conditional requests."""

from __future__ import annotations

import httpx
import pytest
from lxml import etree

from siteatlas.catalog import newest_changes as latest_changes
from tests.fixtures.changes import add_changes, add_event, add_published_scan
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_sitemap

FEED = "/api/v3/changes.atom"
OF_SITE = "/api/v3/domains/example.com/changes.atom"
NAMES = {"a": "http://www.w3.org/2005/Atom"}


async def publish(name: str, *scans: int) -> None:
    """A site with scans that have so many changes, with URLs that count on from scan to scan."""
    async with transaction() as session:
        domain = await add_domain(session, name)
        sitemap = await add_sitemap(session, domain)
        first = 0
        for count in scans:
            scan = await add_published_scan(session, domain)
            await add_changes(session, scan, sitemap, range(first, first + count))
            first += count


def titles(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/atom+xml")
    entries = etree.fromstring(answer.content).iterfind("a:entry", NAMES)
    return [str(entry.findtext("a:title", namespaces=NAMES)) for entry in entries]


def subtitle(answer: httpx.Response) -> str | None:
    found: str | None = etree.fromstring(answer.content).findtext("a:subtitle", namespaces=NAMES)
    return found


async def test_the_newest_publications_come_first(client: httpx.AsyncClient):
    await publish("example.com", 1, 0, 2)
    found = titles(await client.get(FEED))
    assert found == [f"added: https://example.com/{number}" for number in (1, 2, 0)]


async def test_a_feed_has_at_most_100_entries_however_large_a_scan(client: httpx.AsyncClient):
    await publish("example.com", 3, 150)
    found = titles(await client.get(FEED))
    assert len(found) == 100
    assert not {f"added: https://example.com/{number}" for number in range(3)} & set(found)


async def test_the_feed_of_a_site_has_only_its_events(client: httpx.AsyncClient):
    await publish("example.com", 1)
    await publish("other.example", 2)
    async with transaction() as session:
        gone = await add_domain(session, "third.example")
        await add_event(session, gone, "scan_failed")
    assert titles(await client.get(OF_SITE)) == ["added: https://example.com/0"]
    assert len(titles(await client.get(FEED))) == 4
    assert titles(await client.get(FEED))[0] == "scan_failed: third.example"


async def test_kinds_are_a_filter(client: httpx.AsyncClient):
    await publish("example.com", 2)
    assert titles(await client.get(FEED, params={"kinds": "removed"})) == []
    assert len(titles(await client.get(FEED, params={"kinds": "added,removed"}))) == 2


async def test_older_events_of_a_kind_are_found_behind_newer_ones_of_others(
    client: httpx.AsyncClient,
):
    async with transaction() as session:
        domain = await add_domain(session)
        sitemap = await add_sitemap(session, domain)
        old = await add_published_scan(session, domain, change_counts={"removed": 1})
        await add_event(session, domain, "robots_changed", old)
        await add_changes(session, old, sitemap, [1], kind="removed", after=None)
        await add_event(session, domain, "scan_failed")
        for number in range(2, 103):
            scan = await add_published_scan(session, domain, change_counts={"added": 1})
            await add_changes(session, scan, sitemap, [number])
    for kind, about in {
        "robots_changed": "example.com",
        "removed": "https://example.com/1",
        "scan_failed": "example.com",
    }.items():
        found = titles(await client.get(FEED, params={"kinds": kind}))
        assert found == [f"{kind}: {about}"]
    assert len(titles(await client.get(FEED))) == 100


async def test_a_feed_says_if_there_were_too_many_changes_to_examine(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    await publish("example.com", 20, 20)
    params = {"kinds": "added,removed"}
    assert subtitle(await client.get(FEED, params=params)) is None
    monkeypatch.setattr(latest_changes, "MAX_EXAMINED", 30)
    answer = await client.get(FEED, params=params)
    assert len(titles(answer)) == 30
    assert "Incomplete" in (subtitle(answer) or "")


async def test_a_feed_says_if_there_were_too_many_scans_to_examine(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    await publish("example.com", 1, 0, 0)
    assert subtitle(await client.get(FEED)) is None
    monkeypatch.setattr(latest_changes, "MAX_SCANS", 2)
    answer = await client.get(FEED)
    assert titles(answer) == []
    assert "Incomplete" in (subtitle(answer) or "")


@pytest.mark.parametrize("sent", ["{tag}", "W/{tag}", '"other", W/{tag}', '"a,b" ,{tag}', "*"])
async def test_a_tag_that_the_client_has_among_others_is_recognized(
    client: httpx.AsyncClient, sent: str
):
    await publish("example.com", 1)
    tag = (await client.get(FEED)).headers["etag"]
    again = await client.get(FEED, headers={"If-None-Match": sent.format(tag=tag)})
    assert again.status_code == 304
    other = await client.get(FEED, headers={"If-None-Match": f'"{tag}"'})
    assert other.status_code == 200


async def test_what_depends_on_the_tags_of_sites_is_always_sent(client: httpx.AsyncClient):
    await publish("example.com", 1)
    first = await client.get(FEED, params={"tag": "shop"})
    assert titles(first) == []
    assert "etag" not in first.headers
    assert "etag" not in (await client.get("/api/v3/changes", params={"tag": "shop"})).headers


async def test_a_feed_is_sent_again_only_after_a_publication(client: httpx.AsyncClient):
    await publish("example.com", 1)
    first = await client.get(OF_SITE)
    again = await client.get(OF_SITE, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    await publish("other.example", 1)
    later = await client.get(OF_SITE, headers={"If-None-Match": first.headers["etag"]})
    assert later.status_code == 200
    assert later.headers["etag"] != first.headers["etag"]


async def test_unknown_sites_and_parameters_are_refused(client: httpx.AsyncClient):
    assert (await client.get(OF_SITE)).status_code == 404
    assert (await client.get(FEED, params={"kinds": "nonsense"})).status_code == 422
    assert (await client.get(FEED, params={"limit": "5"})).status_code == 422
