"""The queue over HTTP: lists, details, cancel and retry."""

from __future__ import annotations

from uuid import uuid4

import httpx
import pytest
from sqlalchemy import select

from siteatlas.storage.models import Domain, JobAttempt
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_job, add_unfinished_scan

JOBS = "/api/v3/jobs"


async def jobs_with(*statuses: str) -> list[int]:
    async with transaction() as session:
        domain = await add_domain(session)
        return [(await add_job(session, domain, status=status)).id for status in statuses]


async def listed(client: httpx.AsyncClient, **query: object) -> list[int]:
    response = await client.get(JOBS, params={key: str(value) for key, value in query.items()})
    assert response.status_code == 200, response.text
    return [item["id"] for item in response.json()["items"]]


async def test_jobs_are_listed_newest_first(client: httpx.AsyncClient):
    ids = await jobs_with("failed", "completed", "pending")
    assert await listed(client) == ids[::-1]


@pytest.mark.criterion("older-status-words")
@pytest.mark.parametrize(
    ("word", "position"),
    [("completed", 0), ("complete", 0), ("failed", 1), ("error", 1), ("CANCELLED", 2)],
)
async def test_the_status_filter_knows_both_families_of_words(
    client: httpx.AsyncClient, word: str, position: int
):
    ids = await jobs_with("completed", "failed", "cancelled")
    assert await listed(client, status=word) == [ids[position]]


async def test_the_domain_filter_takes_what_a_person_types(client: httpx.AsyncClient):
    ids = await jobs_with("completed")
    async with transaction() as session:
        await add_job(session, await add_domain(session, "example.org"), status="completed")
    assert await listed(client, domain="https://www.example.com/shop") == ids
    assert await listed(client, domain="unknown.example") == []


async def test_pages_of_jobs_neither_skip_nor_repeat(client: httpx.AsyncClient):
    ids = await jobs_with(*["failed"] * 7)
    found, cursor = [], None
    while True:
        query = {"limit": "3"} | ({"cursor": cursor} if cursor else {})
        page = (await client.get(JOBS, params=query)).json()
        found += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == ids[::-1]


async def test_a_limit_above_the_most_is_lowered(client: httpx.AsyncClient):
    ids = await jobs_with("failed")
    assert await listed(client, limit=2_000_000) == ids


async def test_a_cursor_of_another_list_is_refused(client: httpx.AsyncClient):
    await jobs_with("failed", "failed")
    cursor = (await client.get(JOBS, params={"limit": 1})).json()["next_cursor"]
    response = await client.get(JOBS, params={"cursor": cursor, "status": "failed"})
    assert (response.status_code, response.json()["code"]) == (400, "cursor_invalid")


@pytest.mark.criterion("status-life")
async def test_a_job_is_shown_with_its_attempts(client: httpx.AsyncClient):
    (job_id,) = await jobs_with("failed")
    async with transaction() as session:
        session.add(JobAttempt(job_id=job_id, fence=1, attempt=1, outcome="failed", error_code="x"))
    answer = (await client.get(f"{JOBS}/{job_id}")).json()
    assert (answer["id"], answer["job_type"], answer["domain"]) == (
        job_id,
        "sitemap",
        "example.com",
    )
    assert [attempt["outcome"] for attempt in answer["attempts"]] == ["failed"]


async def test_a_job_whose_site_is_gone_keeps_its_name(client: httpx.AsyncClient):
    async with transaction() as session:
        job = await add_job(session)
    answer = (await client.get(f"{JOBS}/{job.id}")).json()
    assert (answer["domain"], answer["domain_id"]) == ("gone.example", None)


async def test_a_waiting_job_is_cancelled_at_once_and_twice_is_fine(client: httpx.AsyncClient):
    (job_id,) = await jobs_with("pending")
    for _ in range(2):
        response = await client.post(f"{JOBS}/{job_id}/cancel")
        assert (response.status_code, response.json()["status"]) == (200, "cancelled")


async def test_a_running_job_is_asked_to_stop(client: httpx.AsyncClient):
    (job_id,) = await jobs_with("processing")
    answer = (await client.post(f"{JOBS}/{job_id}/cancel")).json()
    assert answer["status"] == "processing"
    assert answer["cancel_requested_at"] is not None


async def test_a_finished_job_cannot_be_cancelled(client: httpx.AsyncClient):
    (job_id,) = await jobs_with("completed")
    response = await client.post(f"{JOBS}/{job_id}/cancel")
    assert (response.status_code, response.json()["code"]) == (409, "job_state_conflict")


@pytest.mark.parametrize("status", ["failed", "cancelled"])
async def test_an_ended_job_is_queued_again(client: httpx.AsyncClient, status: str):
    (job_id,) = await jobs_with(status)
    response = await client.post(f"{JOBS}/{job_id}/retry")
    answer = response.json()
    assert (response.status_code, answer["status"], answer["attempt"]) == (202, "pending", 0)
    assert response.headers["location"] == f"/api/v3/sitemap/status/{answer['job_id']}"


@pytest.mark.parametrize("status", ["pending", "processing", "completed"])
async def test_other_jobs_cannot_be_retried(client: httpx.AsyncClient, status: str):
    (job_id,) = await jobs_with(status)
    response = await client.post(f"{JOBS}/{job_id}/retry")
    assert (response.status_code, response.json()["code"]) == (409, "job_state_conflict")


async def test_a_job_cannot_be_retried_while_another_one_of_its_site_is_active(
    client: httpx.AsyncClient,
):
    async with transaction() as session:
        domain = await add_domain(session)
        old = await add_job(session, domain, status="failed", dedup_key="example.com")
        await add_job(session, domain, status="pending", dedup_key="example.com")
    response = await client.post(f"{JOBS}/{old.id}/retry")
    assert (response.status_code, response.json()["code"]) == (409, "job_active")


@pytest.mark.parametrize("action", ["", "/cancel", "/retry"])
async def test_an_unknown_job_is_404_and_a_malformed_id_422(client: httpx.AsyncClient, action: str):
    method = "POST" if action else "GET"
    unknown = await client.request(method, f"{JOBS}/{uuid4()}{action}")
    malformed = await client.request(method, f"{JOBS}/nonsense{action}")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "job_not_found")
    assert (malformed.status_code, malformed.json()["code"]) == (422, "input_invalid")


async def test_after_the_cancel_of_a_waiting_job_the_counters_of_its_site_equal_the_rows(
    client: httpx.AsyncClient,
):
    [job_id] = await jobs_with("pending")
    async with transaction() as session:
        await add_unfinished_scan(session, job_id)
    answer = await client.post(f"{JOBS}/{job_id}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    async with transaction() as session:
        site = (await session.scalars(select(Domain))).one()
    assert (site.sitemap_count, site.url_count, site.distinct_url_count) == (1, 3, 3)
