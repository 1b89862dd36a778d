"""The findings of a site over HTTP: listed, filtered, accepted, opened again."""

from __future__ import annotations

import httpx
import pytest

from tests.fixtures.changes import add_published_scan
from tests.fixtures.database import transaction
from tests.fixtures.findings import found, judge
from tests.fixtures.records import add_domain, add_sitemap

PATH = "/api/v3/domains/example.com/findings"
ACCEPT = f"{PATH}/lastmod_invalid/accept"


@pytest.fixture
async def site(client: httpx.AsyncClient) -> None:
    """Two sitemaps with an error and two notes."""
    del client
    async with transaction() as session:
        domain = await add_domain(session)
        scan = await add_published_scan(session, domain)
        one, two = [await add_sitemap(session, domain, path) for path in ("one.xml", "two.xml")]
        error = found("lastmod-invalid", 4, "https://example.com/1")
        await judge(session, scan, one.id, error, found("priority-ignored"))
        await judge(session, scan, two.id, found("priority-ignored"))


async def states(client: httpx.AsyncClient, **query: str) -> list[tuple[str, str]]:
    answer = await client.get(PATH, params=query)
    assert answer.status_code == 200, answer.text
    return [(item["code"], item["state"]) for item in answer.json()["items"]]


@pytest.mark.usefixtures("site")
async def test_a_finding_says_what_is_wrong_why_and_how_to_fix_it(client: httpx.AsyncClient):
    item = (await client.get(PATH)).json()["items"][0]
    assert (item["code"], item["severity"], item["count"]) == ("lastmod-invalid", "error", 4)
    assert item["sitemap"] == "https://example.com/one.xml"
    assert item["samples"] == [{"url": "https://example.com/1", "value": None}]
    assert item["title"]
    assert item["why"]
    assert item["fix"]


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("query", "found_codes"),
    [
        ({}, ["lastmod-invalid", "priority-ignored", "priority-ignored"]),
        ({"severity": "warning"}, ["lastmod-invalid"]),
        ({"code": "lastmod_invalid"}, ["lastmod-invalid"]),
        ({"sitemap": "https://example.com/two.xml"}, ["priority-ignored"]),
        ({"state": "resolved"}, []),
    ],
)
async def test_findings_can_be_filtered(
    client: httpx.AsyncClient, query: dict[str, str], found_codes: list[str]
):
    assert [code for code, _ in await states(client, **query)] == found_codes


@pytest.mark.usefixtures("site")
async def test_findings_are_accepted_and_opened_again(client: httpx.AsyncClient):
    answer = await client.post(ACCEPT, json={"reason": "not our file"})
    assert (answer.status_code, answer.json()) == (200, {"count": 1})
    assert await states(client, state="accepted") == [("lastmod-invalid", "accepted")]
    assert ("lastmod-invalid", "new") not in await states(client)
    assert (await client.delete(ACCEPT)).json() == {"count": 1}
    assert ("lastmod-invalid", "new") in await states(client)


@pytest.mark.usefixtures("site")
async def test_what_was_not_found_cannot_be_accepted(client: httpx.AsyncClient):
    answer = await client.post(f"{PATH}/url-invalid/accept", json={"reason": "why not"})
    assert (answer.status_code, answer.json()["code"]) == (404, "finding_not_found")
    assert (await client.post(ACCEPT, json={"reason": ""})).status_code == 422
