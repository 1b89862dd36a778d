"""The problems of a site's documents: by code, with samples, first and last scan."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.storage.models import Domain, DomainProblem, Sitemap
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_sitemap

PATH = "/api/v3/domains/example.com/problems"
SAMPLE = {"url": "https://example.com/1", "value": "yesterday", "entry": 12}


def problem(domain: Domain, sitemap: Sitemap, code: str, **columns: Any) -> DomainProblem:
    values = {"count": 1, "first_scan_id": 3, "last_scan_id": 7} | columns
    return DomainProblem(domain_id=domain.id, sitemap_id=sitemap.id, code=code, **values)


@pytest.fixture
async def site(client: httpx.AsyncClient) -> None:
    """Two documents with three problems, and one that is over."""
    del client
    async with transaction() as session:
        domain = await add_domain(session)
        one = await add_sitemap(session, domain, "one.xml")
        two = await add_sitemap(session, domain, "two.xml")
        session.add(problem(domain, one, "lastmod_invalid", count=4, samples=[SAMPLE]))
        session.add(problem(domain, two, "lastmod_invalid"))
        session.add(problem(domain, one, "duplicate_url"))
        session.add(problem(domain, two, "scope", resolved_at=datetime(2026, 1, 1, tzinfo=UTC)))


async def codes(client: httpx.AsyncClient, **query: str) -> list[str]:
    answer = (await client.get(PATH, params=query)).json()
    return [item["code"] for item in answer["items"]]


@pytest.mark.usefixtures("site")
async def test_a_problem_says_where_it_is_and_since_when(client: httpx.AsyncClient):
    answer = (await client.get(PATH, params={"code": "lastmod_invalid"})).json()
    item = next(item for item in answer["items"] if item["count"] == 4)
    assert item["sitemap"] == "https://example.com/one.xml"
    assert item["samples"] == [SAMPLE]
    assert item["meaning"] == ProblemCode.LASTMOD_INVALID.meaning
    assert (item["first_scan_id"], item["last_scan_id"], item["resolved_at"]) == (3, 7, None)


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, ["duplicate_url", "lastmod_invalid", "lastmod_invalid"]),
        ({"state": "resolved"}, ["scope"]),
        ({"state": "all", "sitemap": "https://example.com/two.xml"}, ["lastmod_invalid", "scope"]),
        ({"code": "duplicate_url"}, ["duplicate_url"]),
        ({"sitemap": "https://example.com/none.xml"}, []),
    ],
)
async def test_problems_can_be_filtered(
    client: httpx.AsyncClient, query: dict[str, str], found: list[str]
):
    assert await codes(client, **query) == found


@pytest.mark.usefixtures("site")
async def test_pages_of_problems_neither_skip_nor_repeat(client: httpx.AsyncClient):
    found: list[tuple[str, str]] = []
    query = {"limit": "1", "state": "all"}
    for _ in range(4):
        page = (await client.get(PATH, params=query)).json()
        found += [(item["code"], item["sitemap_id"]) for item in page["items"]]
        query["cursor"] = page["next_cursor"] or ""
    assert found == sorted(set(found))
    assert len(found) == 4
    assert query["cursor"] == ""


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("query", [{"state": "old"}, {"code": "A B"}, {"kind": "x"}])
async def test_a_filter_that_is_none_is_refused(client: httpx.AsyncClient, query: dict[str, str]):
    assert (await client.get(PATH, params=query)).status_code == 422


async def test_a_site_that_is_not_known_has_no_problems(client: httpx.AsyncClient):
    assert (await client.get(PATH)).status_code == 404
