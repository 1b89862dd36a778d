"""Importing a list of sites over HTTP: what is stored, what is reported, and for whom."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from siteatlas.storage.models import Domain, Job
from tests.fixtures.database import transaction
from tests.fixtures.pipeline import rows_of

IMPORT = "/api/v3/domains/import"


async def send(client: httpx.AsyncClient, *sites: dict[str, Any], **fields: Any) -> Any:
    answer = await client.post(IMPORT, json={"sites": list(sites)} | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def stored() -> dict[str, Domain]:
    return {row.domain: row for row in await rows_of(Domain)}


async def test_every_site_is_watched_with_its_interval_and_tags_and_a_scan_is_queued(
    client: httpx.AsyncClient,
):
    answer = await send(
        client,
        {"domain": "https://www.example.com/", "scan_interval_hours": 12, "tags": ["Shop"]},
        {"domain": "example.org"},
        tags=["import"],
    )
    assert (answer["added"], answer["known"], answer["errors"]) == (2, 0, [])
    domains = await stored()
    first, second = domains["example.com"], domains["example.org"]
    assert (first.watched, first.scan_interval_hours, first.tags) == (True, 12, ["import", "shop"])
    assert (second.watched, second.scan_interval_hours, second.tags) == (True, None, ["import"])
    assert first.base_url == "https://www.example.com/"
    assert first.next_scan_at is not None
    jobs = await rows_of(Job)
    assert {job.dedup_key: job.domain_id for job in jobs} == {
        "example.com": first.id,
        "example.org": second.id,
    }
    assert {job.status for job in jobs} == {"pending"}


async def test_bad_sites_are_reported_with_their_position_and_the_good_ones_taken(
    client: httpx.AsyncClient,
):
    answer = await send(
        client, {"domain": "no host"}, {"domain": "example.com"}, {"domain": "10.0.0.1"}
    )
    assert (answer["added"], answer["known"]) == (1, 0)
    assert [(one["position"], one["domain"]) for one in answer["errors"]] == [
        (0, "no host"),
        (2, "10.0.0.1"),
    ]
    assert answer["errors"][1]["error_code"] == "egress_denied"


async def test_a_known_site_keeps_its_tags_and_its_interval(client: httpx.AsyncClient):
    await send(client, {"domain": "example.com", "scan_interval_hours": 6, "tags": ["a"]})
    answer = await send(client, {"domain": "example.com", "tags": ["b"]})
    assert (answer["added"], answer["known"]) == (0, 1)
    domain = (await stored())["example.com"]
    assert (domain.tags, domain.scan_interval_hours) == (["a", "b"], 6)
    assert len(await rows_of(Job)) == 1


async def test_only_an_address_with_a_scheme_replaces_that_of_a_known_site(
    client: httpx.AsyncClient,
):
    for name in ("http.example", "https.example", "twice.example"):
        await client.post("/api/v3/domains", json={"domain": f"https://{name}"})
    await send(
        client,
        {"domain": "http://http.example"},
        {"domain": "https.example"},
        {"domain": "http://twice.example"},
        {"domain": "twice.example"},
    )
    assert {name: row.base_url for name, row in (await stored()).items()} == {
        "http.example": "http://http.example/",
        "https.example": "https://https.example/",
        "twice.example": "http://twice.example/",
    }


async def test_a_site_that_would_have_too_many_tags_is_reported_and_stays_as_it_is(
    client: httpx.AsyncClient,
):
    tags = [f"tag{number:02d}" for number in range(25)]
    await send(client, {"domain": "known.example", "tags": tags[:20]})
    await client.patch("/api/v3/domains/known.example", json={"watched": False})
    answer = await send(
        client,
        {"domain": "new.example", "tags": tags[:15]},
        {"domain": "known.example", "tags": tags[20:21]},
        {"domain": "new.example", "tags": tags[15:]},
        {"domain": "good.example"},
    )
    assert (answer["added"], answer["known"]) == (1, 0)
    assert [(one["position"], one["error_code"]) for one in answer["errors"]] == [
        (0, "too_many_tags"),
        (1, "too_many_tags"),
    ]
    domains = await stored()
    assert set(domains) == {"known.example", "good.example"}
    assert (domains["known.example"].tags, domains["known.example"].watched) == (tags[:20], False)
    answer = await send(client, {"domain": "known.example", "tags": tags[:3]})
    assert (answer["known"], answer["errors"]) == (1, [])


async def test_a_site_that_is_named_twice_counts_once(client: httpx.AsyncClient):
    answer = await send(
        client,
        {"domain": "example.com", "scan_interval_hours": 6, "tags": ["a"]},
        {"domain": "www.example.com", "tags": ["b"]},
    )
    assert answer["added"] == 1
    domain = (await stored())["example.com"]
    assert (domain.tags, domain.scan_interval_hours) == (["a", "b"], 6)


@pytest.mark.slow
async def test_thousands_of_sites_are_imported_in_one_request(client: httpx.AsyncClient):
    sites = [{"domain": f"site-{number}.example", "tags": ["many"]} for number in range(3_000)]
    assert (await send(client, *sites))["added"] == 3_000
    async with transaction() as session:
        assert await session.scalar(select(func.count()).select_from(Job)) == 3_000
    answer = await client.get("/api/v3/domains", params={"tag": "many", "limit": "1"})
    assert answer.json()["next_cursor"] is not None


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"sites": []},
        {"sites": [{"domain": "a.example"}] * 5_001},
        {"sites": [{"domain": "a.example", "scan_interval_hours": 0}]},
        {"sites": [{"domain": "a.example", "tags": ["a b"]}]},
        {"sites": ["a.example"]},
    ],
)
async def test_a_malformed_list_is_refused(client: httpx.AsyncClient, body: dict[str, Any]):
    assert (await client.post(IMPORT, json=body)).status_code == 422
    assert await stored() == {}


async def test_the_path_allows_only_its_own_method(client: httpx.AsyncClient):
    answer = await client.put(IMPORT, json={})
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    other = await client.put("/api/v3/domains/example.com", json={})
    assert other.headers["allow"] == "DELETE, GET, PATCH"
