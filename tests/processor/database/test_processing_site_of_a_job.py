"""A job that was created without its site belongs to it once a worker has registered it."""

from __future__ import annotations

import pytest

from siteatlas.queue.job_service import job_service
from siteatlas.queue.views import list_jobs
from siteatlas.storage.models import LOCAL_USER_ID, Domain, Job
from siteatlas.storage.session import get_background_session, get_session
from tests.fixtures.pipeline import (
    pages,
    rows_of,
    settings_for,
    submit_server,
    urlset,
    work,
)
from tests.fixtures.queue import change, job_of
from tests.fixtures.site_server import SiteServer

pytestmark = pytest.mark.usefixtures("database")


async def insert_job(domain: str) -> int:
    """A plain row, as a program that knows only the table writes it."""
    job = Job(created_by=LOCAL_USER_ID, result_data={"domain": domain})
    async with get_background_session() as session, session.begin():
        session.add(job)
        await session.flush()
        return job.id


async def jobs_listed_for(domain: str) -> list[int]:
    async with get_session() as session, session.begin():
        return [job.id for job in (await list_jobs(session, domain=domain)).items]


@pytest.mark.criterion("content-stored")
async def test_an_inserted_job_belongs_to_its_site_when_it_has_completed() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 3))}) as server:
        job_id = await insert_job(server.host_port)
        await work(settings_for(server))
    (domain,) = await rows_of(Domain)
    job = await job_of(job_id)
    assert (job.status, job.domain_id) == ("completed", domain.id)
    assert (domain.last_scan_status, domain.url_count) == ("completed", 3)
    assert await jobs_listed_for(server.host_port) == [job_id]


@pytest.mark.criterion("domain-status")
async def test_the_failure_of_an_inserted_job_reaches_its_site() -> None:
    async with SiteServer() as server:
        job_id = await insert_job(server.host_port)
        await work(settings_for(server))
    (domain,) = await rows_of(Domain)
    assert (await job_of(job_id)).domain_id == domain.id
    assert (domain.last_scan_status, domain.last_error_code) == ("failed", "no_sitemap")
    assert domain.failures_in_a_row == 1


async def test_a_refused_address_of_an_inserted_job_is_noted_on_its_site() -> None:
    await insert_job("127.0.0.1:9")
    await work(settings_for())
    (domain,) = await rows_of(Domain)
    assert (domain.domain, domain.last_error_code) == ("127.0.0.1:9", "egress_denied")


async def test_a_status_set_by_hand_keeps_the_site_of_a_job() -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 3))}) as server:
        job = await submit_server(server, max_pages=2)
        async with get_background_session() as session, session.begin():
            ended = await job_service.update_status(
                session, job.id, "complete", progress=1.0, result_data={"sitemaps": []}
            )
            assert ended.result_data == {
                "domain": server.host_port,
                "max_pages": 2,
                "sitemaps": [],
            }
            await job_service.update_status(session, job.id, "pending")
        await work(settings_for(server))
    assert (await job_of(job.id)).status == "completed"


@pytest.mark.parametrize("job_metadata", [None, {}])
async def test_a_job_that_has_lost_its_site_is_that_of_its_domain(
    job_metadata: dict[str, str] | None,
) -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 3))}) as server:
        job = await submit_server(server)
        await change(job.id, result_data={"domain": None}, job_metadata=job_metadata)
        await work(settings_for(server))
        other = await insert_job(server.host_port)
        await change(other, result_data={}, job_metadata={"base_url": server.base})
        await work(settings_for(server))
    assert [(await job_of(one)).status for one in (job.id, other)] == ["completed"] * 2
    assert len(await rows_of(Domain)) == 1


@pytest.mark.criterion("content-stored")
async def test_a_job_of_the_older_front_belongs_to_its_site_at_once() -> None:
    async with get_background_session() as session, session.begin():
        data = {"result_data": {"domain": "www.example.com", "max_pages": 100}}
        created = await job_service.create(session, data)
    assert await jobs_listed_for("example.com") == [created.id]
