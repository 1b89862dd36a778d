"""Submitting one document of a site: what is stored, joined, widened and refused."""

from __future__ import annotations

import httpx
from sqlalchemy import select, update

from siteatlas.storage.models import Domain, Job, JobStatus
from tests.fixtures.database import transaction

SCAN = "/api/v3/sitemap/scan"
NEWS = "https://example.com/news.xml"


async def submit(client: httpx.AsyncClient, base_url: str, *, only: bool) -> httpx.Response:
    return await client.post(SCAN, json={"base_url": base_url, "only_document": only})


async def stored_job() -> Job:
    async with transaction() as session:
        return (await session.execute(select(Job))).scalar_one()


async def test_a_job_remembers_its_only_document(client: httpx.AsyncClient):
    assert (await submit(client, NEWS, only=True)).status_code == 202
    assert (await stored_job()).job_metadata == {"base_url": NEWS, "document": NEWS}


async def test_one_document_leaves_the_address_of_its_site_alone(client: httpx.AsyncClient):
    await submit(client, "http://example.com", only=False)
    await submit(client, NEWS, only=True)
    async with transaction() as session:
        domain = (await session.execute(select(Domain))).scalar_one()
    assert domain.base_url == "http://example.com/"


async def test_one_document_joins_a_scan_of_the_whole_site(client: httpx.AsyncClient):
    await submit(client, "http://example.com", only=False)
    answer = await submit(client, NEWS, only=True)
    assert (answer.status_code, answer.json()["deduplicated"]) == (202, True)
    assert (await stored_job()).job_metadata == {
        "base_url": "http://example.com/",
        "document": None,
        "documents": [NEWS],
    }


async def test_a_request_for_the_whole_site_widens_a_waiting_job(client: httpx.AsyncClient):
    await submit(client, NEWS, only=True)
    answer = await submit(client, "example.com", only=False)
    assert (answer.status_code, answer.json()["deduplicated"]) == (202, True)
    assert (await stored_job()).job_metadata == {
        "base_url": "example.com/",
        "document": None,
        "documents": [NEWS],
    }


async def test_a_request_for_the_whole_site_widens_a_running_job(client: httpx.AsyncClient):
    await submit(client, NEWS, only=True)
    async with transaction() as session:
        await session.execute(update(Job).values(status=JobStatus.PROCESSING))
    answer = await submit(client, "example.com", only=False)
    assert (answer.status_code, answer.json()["deduplicated"]) == (202, True)
    job = await stored_job()
    assert job.status == JobStatus.PROCESSING
    assert job.job_metadata == {"base_url": "example.com/", "document": None, "documents": [NEWS]}


async def test_what_an_active_job_does_not_cover_is_a_conflict(client: httpx.AsyncClient):
    await submit(client, NEWS, only=True)
    assert (await submit(client, NEWS, only=True)).status_code == 202
    other = await submit(client, "https://example.com/other.xml", only=True)
    assert (other.status_code, other.json()["code"]) == (409, "job_active")


async def test_a_refused_document_is_not_left_with_the_active_job(client: httpx.AsyncClient):
    await submit(client, NEWS, only=True)
    refused = await submit(client, "https://example.com/other.xml", only=True)
    assert refused.status_code == 409
    assert (await stored_job()).job_metadata == {"base_url": NEWS, "document": NEWS}


async def test_a_site_without_a_document_is_refused(client: httpx.AsyncClient):
    answer = await submit(client, "https://example.com/", only=True)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["pointer"], error["code"]) == ("#/base_url", "address_invalid")
    assert "only_document" in error["message"]
