"""The calls of the integration documents as they stand there, and the table that they assume."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Connection, inspect

from siteatlas.processor.processing import process_domain_with_own_session
from siteatlas.queue.job_service import job_service
from siteatlas.scheduler.sitemap_scheduler import process_pending_sitemaps
from siteatlas.storage.models import Job
from siteatlas.storage.session import bound_database, get_background_session
from tests.fixtures.pipeline import pages, urlset
from tests.fixtures.site_server import SiteServer

pytestmark = pytest.mark.usefixtures("database")

USER = "5905e9fe-6c61-4694-b09a-6602017b000a"
SITE = {"/sitemap.xml": urlset(pages("a", 30))}


def job_data(server: SiteServer) -> dict[str, Any]:
    """What 13.9 §3.1 hands to `job_service.create`."""
    return {
        "job_id": str(uuid4()),
        "job_type": "sitemap",
        "status": "pending",
        "created_by": USER,
        "result_data": {"domain": server.base, "max_pages": 10},
    }


async def created(server: SiteServer) -> str:
    data = job_data(server)
    async with get_background_session() as session, session.begin():
        await job_service.create(session, data)
    return str(data["job_id"])


async def find(job_id: str) -> Job:
    async with get_background_session() as session, session.begin():
        return await job_service.get_by_id(session, job_id)


@pytest.mark.criterion("call-signatures")
async def test_a_job_is_created_found_and_processed_by_the_calls_of_the_documents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with SiteServer(SITE) as server:
        monkeypatch.setenv("SITEATLAS_EGRESS_ALLOW", server.host_port)
        job_id = await created(server)
        async with get_background_session() as session, session.begin():
            (pending,) = await job_service.get_pending_jobs(session, job_type="sitemap", limit=10)
        assert (str(pending.job_id), pending.status) == (job_id, "pending")
        await process_domain_with_own_session(
            job_id=str(pending.job_id),
            domain=(pending.result_data or {})["domain"],
            user_id=USER,
            max_urls=1000,
        )
    job = await find(job_id)
    assert (job.status, job.progress, str(job.created_by)) == ("completed", 1.0, USER)
    assert job.result_data is not None
    assert [one["url_count"] for one in job.result_data["sitemaps"]] == [30]


@pytest.mark.criterion("call-signatures")
async def test_created_jobs_are_worked_off_by_process_pending_sitemaps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with SiteServer(SITE) as server:
        monkeypatch.setenv("SITEATLAS_EGRESS_ALLOW", server.host_port)
        job_id = await created(server)
        await process_pending_sitemaps(limit=10)
    job = await find(job_id)
    assert job.result_data is not None
    assert (job.status, job.result_data["url_count"]) == ("completed", 10)


async def test_a_created_job_may_give_its_limit_under_the_name_of_the_api() -> None:
    async with SiteServer() as server:
        data = job_data(server) | {"result_data": {"domain": server.base, "max_urls": 10}}
        async with get_background_session() as session, session.begin():
            submitted = await job_service.create(session, data)
    assert submitted.max_pages == 10


@pytest.mark.criterion("completed-status", "job-dictionary", "call-signatures")
@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (
            {"status": "complete", "progress": 1.0, "result_data": {"sitemaps": []}},
            ("completed", 1.0, {"sitemaps": []}, None),
        ),
        ({"status": "failed", "error": "no answer"}, ("failed", 0.0, None, "no answer")),
    ],
)
async def test_a_status_is_set_by_the_calls_of_the_documents(
    given: dict[str, Any], stored: tuple[object, ...]
) -> None:
    async with SiteServer() as server:
        job_id = await created(server)
    number = (await find(job_id)).to_dict()["id"]
    async with get_background_session() as db_session, db_session.begin():
        await job_service.update_status(db_session, job_id=number, **given)
    job = await find(job_id)
    # What the job asked for is kept.
    result = {"sitemaps": (job.result_data or {}).get("sitemaps")} if stored[2] else None
    assert (job.result_data or {})["domain"] == server.host_port
    assert (job.status, job.progress, result, job.error) == stored


@pytest.mark.criterion("jobs-table")
async def test_the_jobs_table_has_the_columns_of_the_architecture() -> None:
    def read(connection: Connection) -> dict[str, str]:
        return {
            column["name"]: str(column["type"])
            for column in inspect(connection).get_columns("jobs")
        }

    async with bound_database().engine.connect() as connection:
        columns = await connection.run_sync(read)
    asked_for = {
        "id": "BIGINT",  # the number of 13.9; the UUID of 13.6 is job_id
        "job_id": "UUID",
        "job_type": "TEXT",
        "status": "TEXT",
        "progress": "DOUBLE PRECISION",
        "result_data": "JSONB",
        "error": "TEXT",  # error_message of 13.6 under the name of 13.9
        "created_at": "TIMESTAMP",
        "updated_at": "TIMESTAMP",
    }
    assert {name: columns.get(name) for name in asked_for} == asked_for
