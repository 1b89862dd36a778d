"""Sites over HTTP: add, list, change, forget."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
import pytest

from siteatlas.storage.models import Job
from tests.fixtures.database import transaction
from tests.fixtures.pipeline import rows_of
from tests.fixtures.records import add_domain, add_job

DOMAINS = "/api/v3/domains"


async def test_an_added_site_is_watched(client: httpx.AsyncClient):
    response = await client.post(DOMAINS, json={"domain": "www.example.com"})
    answer = response.json()
    assert response.status_code == 201
    assert response.headers["location"] == "/api/v3/domains/example.com"
    assert (answer["domain"], answer["watched"]) == ("example.com", True)
    assert answer["next_scan_at"] is not None


async def test_adding_a_known_site_again_is_200(client: httpx.AsyncClient):
    body = {"domain": "example.com", "scan_interval_hours": 6, "max_pages": 50}
    await client.post(DOMAINS, json={"domain": "example.com", "watch": False})
    response = await client.post(DOMAINS, json=body)
    answer = response.json()
    assert (response.status_code, answer["watched"]) == (200, True)
    assert (answer["scan_interval_hours"], answer["max_pages"]) == (6.0, 50)


async def test_a_site_that_may_not_be_contacted_is_refused(cut_off_client: httpx.AsyncClient):
    response = await cut_off_client.post(DOMAINS, json={"domain": "192.168.1.1"})
    problem = response.json()
    assert (response.status_code, problem["code"]) == (422, "egress_denied")
    assert problem["errors"][0]["pointer"] == "#/domain"


async def test_sites_are_listed_by_name_in_pages(client: httpx.AsyncClient):
    async with transaction() as session:
        for name in ("b.example", "a.example", "c.example"):
            await add_domain(session, name)
    first = (await client.get(DOMAINS, params={"limit": 2})).json()
    query = {"limit": 2, "cursor": first["next_cursor"]}
    second = (await client.get(DOMAINS, params=query)).json()
    names = [item["domain"] for page in (first, second) for item in page["items"]]
    assert names == ["a.example", "b.example", "c.example"]
    assert second["next_cursor"] is None


async def test_only_watched_sites_can_be_asked_for(client: httpx.AsyncClient):
    async with transaction() as session:
        await add_domain(session, "a.example", watched=True)
        await add_domain(session, "b.example")
    answer = (await client.get(DOMAINS, params={"watched": "true"})).json()
    assert [item["domain"] for item in answer["items"]] == ["a.example"]


async def test_a_site_is_found_by_what_a_person_types(client: httpx.AsyncClient):
    async with transaction() as session:
        await add_domain(session, url_count=3, distinct_url_count=2, sitemap_count=1)
    answer = (await client.get(f"{DOMAINS}/WWW.example.com")).json()
    assert (answer["domain"], answer["url_count"], answer["sitemap_count"]) == ("example.com", 3, 1)


async def test_a_site_with_a_port_is_found(client: httpx.AsyncClient):
    async with transaction() as session:
        await add_domain(session, "example.com:8080")
    assert (await client.get(f"{DOMAINS}/example.com:8080")).status_code == 200


async def test_a_change_touches_only_what_it_names(client: httpx.AsyncClient):
    await client.post(DOMAINS, json={"domain": "example.com", "max_pages": 7})
    response = await client.patch(f"{DOMAINS}/example.com", json={"paused": True})
    answer = response.json()
    assert (response.status_code, answer["paused"], answer["max_pages"]) == (200, True, 7)
    assert answer["watched"] is True


async def test_a_site_that_is_no_longer_watched_is_not_due(client: httpx.AsyncClient):
    await client.post(DOMAINS, json={"domain": "example.com"})
    answer = (await client.patch(f"{DOMAINS}/example.com", json={"watched": False})).json()
    assert (answer["watched"], answer["next_scan_at"]) == (False, None)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"paused": None},
        {"paused": "yes"},
        {"watched": 1},
        {"scan_interval_hours": 0},
        {"scan_interval_hours": -1},
        {"scan_interval_hours": 1e308},
        {"max_pages": 0},
        {"max_pages": 50_000_001},
        {"domain": "other.example"},
    ],
)
async def test_a_change_that_makes_no_sense_is_refused(
    cut_off_client: httpx.AsyncClient, change: object
):
    response = await cut_off_client.patch(f"{DOMAINS}/example.com", json=change)
    assert (response.status_code, response.json()["code"]) == (422, "input_invalid")


async def test_held_removals_are_released_by_a_scan(client: httpx.AsyncClient):
    async with transaction() as session:
        await add_domain(session, missing_count=31, removals_held_since=datetime.now(UTC))
    response = await client.post(f"{DOMAINS}/www.example.com/release")
    answer = response.json()
    assert (response.status_code, answer["missing_count"], answer["deduplicated"]) == (
        202,
        31,
        False,
    )
    again = (await client.post(f"{DOMAINS}/example.com/release")).json()
    assert (again["job_id"], again["deduplicated"]) == (answer["job_id"], True)
    (job,) = await rows_of(Job)
    assert (job.job_metadata or {})["release_removals"] is True


async def test_nothing_is_released_where_nothing_is_held(client: httpx.AsyncClient):
    unknown = await client.post(f"{DOMAINS}/example.com/release")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "domain_not_found")
    async with transaction() as session:
        await add_domain(session)
    refused = await client.post(f"{DOMAINS}/example.com/release")
    assert (refused.status_code, refused.json()["code"]) == (409, "nothing_held")


async def test_a_forgotten_site_is_gone(client: httpx.AsyncClient):
    await client.post(DOMAINS, json={"domain": "example.com"})
    response = await client.delete(f"{DOMAINS}/example.com")
    assert (response.status_code, response.content) == (204, b"")
    assert (await client.get(f"{DOMAINS}/example.com")).status_code == 404
    assert (await client.get(DOMAINS)).json()["items"] == []


async def test_a_forgotten_site_that_is_added_again_is_a_new_one(client: httpx.AsyncClient):
    first = (await client.post(DOMAINS, json={"domain": "example.com"})).json()
    await client.delete(f"{DOMAINS}/example.com")
    response = await client.post(DOMAINS, json={"domain": "example.com", "watch": False})
    again = response.json()
    assert response.status_code == 201
    assert again["id"] != first["id"]
    assert again["created_at"] > first["created_at"]
    assert [item["id"] for item in (await client.get(DOMAINS)).json()["items"]] == [again["id"]]
    jobs = (await client.get("/api/v3/jobs")).json()["items"]
    assert [(job["domain"], job["status"]) for job in jobs] == [("example.com", "cancelled")]


async def test_a_changed_interval_moves_the_next_scan(client: httpx.AsyncClient):
    before = (await client.post(DOMAINS, json={"domain": "example.com"})).json()
    change = {"scan_interval_hours": 0.02}
    after = (await client.patch(f"{DOMAINS}/example.com", json=change)).json()
    assert after["next_scan_at"] < before["next_scan_at"]


async def test_an_interval_below_a_minute_is_refused_with_the_shortest_one(
    client: httpx.AsyncClient,
):
    body = {"domain": "example.com", "scan_interval_hours": 0.01}
    response = await client.post(DOMAINS, json=body)
    (error,) = response.json()["errors"]
    assert (response.status_code, error["pointer"]) == (422, "#/scan_interval_hours")
    assert "0.016" in error["message"]


async def test_a_site_with_a_running_job_cannot_be_forgotten(client: httpx.AsyncClient):
    async with transaction() as session:
        await add_job(session, await add_domain(session), status="processing")
    response = await client.delete(f"{DOMAINS}/example.com")
    assert (response.status_code, response.json()["code"]) == (409, "job_active")


async def test_forgetting_a_site_cancels_its_waiting_job(client: httpx.AsyncClient):
    await client.post(DOMAINS, json={"domain": "example.com"})
    await client.delete(f"{DOMAINS}/example.com")
    jobs = (await client.get("/api/v3/jobs")).json()["items"]
    assert [job["status"] for job in jobs] == ["cancelled"]


async def test_watching_a_site_queues_its_first_scan_and_plans_the_next(client: httpx.AsyncClient):
    added = await client.post(DOMAINS, json={"domain": "example.com", "scan_interval_hours": 6})
    jobs = (await client.get("/api/v3/jobs")).json()["items"]
    assert [(job["domain"], job["status"]) for job in jobs] == [("example.com", "pending")]
    assert added.json()["next_scan_at"] > jobs[0]["created_at"]


@pytest.mark.parametrize("rest", ["", "/sitemaps", "/urls", "/candidates", "/scans"])
async def test_an_unknown_site_is_404_and_a_malformed_one_422(client: httpx.AsyncClient, rest: str):
    unknown = await client.get(f"{DOMAINS}/unknown.example{rest}")
    malformed = await client.get(f"{DOMAINS}/exa%20mple{rest}")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "domain_not_found")
    assert (malformed.status_code, malformed.json()["code"]) == (422, "address_invalid")


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
async def test_an_unknown_site_can_be_neither_changed_nor_forgotten(
    client: httpx.AsyncClient, method: str
):
    body = {"paused": True} if method == "PATCH" else None
    response = await client.request(method, f"{DOMAINS}/unknown.example", json=body)
    assert (response.status_code, response.json()["code"]) == (404, "domain_not_found")


async def test_watching_a_site_names_the_job_of_its_scan(client: httpx.AsyncClient):
    added = (await client.post(DOMAINS, json={"domain": "example.com"})).json()
    job = (await client.get(added["status_url"])).json()
    assert (job["job_id"], job["domain"]) == (added["job_id"], "example.com")
    again = (await client.post(DOMAINS, json={"domain": "example.com"})).json()
    assert again["job_id"] == added["job_id"]


async def test_a_site_that_is_not_watched_has_no_job(client: httpx.AsyncClient):
    body = {"domain": "example.com", "watch": False}
    added = (await client.post(DOMAINS, json=body)).json()
    assert (added["job_id"], added["status_url"]) == (None, None)
