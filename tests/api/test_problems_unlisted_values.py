"""Rows with a status that another version wrote: answers contain the text instead of failing."""

from __future__ import annotations

import httpx
from sqlalchemy import ColumnClause, literal_column, update

from siteatlas.storage.models import AttemptOutcome, BatchItem, Domain, JobAttempt
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_job

UNLISTED: ColumnClause[str] = literal_column("'deferred'")


async def test_a_site_with_an_unlisted_status_is_listed_and_shown(client: httpx.AsyncClient):
    async with transaction() as session:
        domain = await add_domain(session)
        await session.execute(update(Domain).values(last_scan_status=UNLISTED))
        name = domain.domain
    listed = (await client.get("/api/v3/domains")).json()["items"]
    shown = (await client.get(f"/api/v3/domains/{name}")).json()
    assert [listed[0]["last_scan_status"], shown["last_scan_status"]] == ["deferred"] * 2


async def test_a_job_with_an_unlisted_attempt_is_shown(client: httpx.AsyncClient):
    async with transaction() as session:
        job = await add_job(session)
        attempt = JobAttempt(job_id=job.id, fence=1, attempt=1, outcome=AttemptOutcome.FAILED)
        session.add(attempt)
        await session.flush()
        await session.execute(update(JobAttempt).values(outcome=UNLISTED))
        job_id = job.id
    answer = (await client.get(f"/api/v3/jobs/{job_id}")).json()
    assert [attempt["outcome"] for attempt in answer["attempts"]] == ["deferred"]


async def test_a_batch_with_an_unlisted_item_is_shown(client: httpx.AsyncClient):
    created = await client.post("/api/v3/sitemap/batch/create", json={"domains": ["example.com"]})
    async with transaction() as session:
        await session.execute(update(BatchItem).values(status=UNLISTED))
    response = await client.get(created.json()["status_url"])
    assert response.status_code == 200, response.text
    assert [item["status"] for item in response.json()["domain_statuses"].values()] == ["deferred"]
