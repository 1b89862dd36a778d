"""The front that runs one job by its id: which site it scans, and what it does without a job."""

from __future__ import annotations

import asyncio
import io
from typing import Any
from uuid import uuid4

import pytest

from siteatlas.processor import processing as own_session
from siteatlas.processor.processing import process_domain_with_own_session
from siteatlas.storage.models import LOCAL_USER_ID, Domain, Job
from siteatlas.storage.session import get_background_session
from tests.fixtures.log_lines import log_lines, logged
from tests.fixtures.pipeline import pages, rows_of, submit_server, urlset
from tests.fixtures.queue import job_of, let_lease_expire, rescue_all
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until

__all__ = ["log_lines"]
pytestmark = pytest.mark.usefixtures("database")


def site(urls: int = 3) -> SiteServer:
    return SiteServer({"/sitemap.xml": urlset(pages("a", urls))})


def allow(monkeypatch: pytest.MonkeyPatch, *servers: SiteServer) -> None:
    """The front reads its settings itself."""
    hosts = ",".join(server.host_port for server in servers)
    monkeypatch.setenv("SITEATLAS_EGRESS_ALLOW", hosts)


async def job_without_a_site() -> Job:
    async with get_background_session() as session, session.begin():
        job = Job(created_by=LOCAL_USER_ID, result_data={"max_pages": 100})
        session.add(job)
        await session.flush()
        await session.refresh(job)
        return job


@pytest.mark.criterion("call-signatures")
async def test_the_given_site_is_scanned_when_the_job_names_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with site() as server:
        allow(monkeypatch, server)
        job = await job_without_a_site()
        status = await process_domain_with_own_session(
            str(job.job_id), server.host_port, user_id=str(uuid4())
        )
    ended = await job_of(job.id)
    (domain,) = await rows_of(Domain)
    assert (status, ended.status, ended.created_by) == ("completed", "completed", LOCAL_USER_ID)
    assert (ended.domain_id, domain.domain, domain.url_count) == (domain.id, server.host_port, 3)


async def test_a_job_keeps_its_own_site_and_a_warning_names_the_other_one(
    monkeypatch: pytest.MonkeyPatch, log_lines: io.StringIO
) -> None:
    async with site() as own, site() as other:
        allow(monkeypatch, own, other)
        submitted = await submit_server(own)
        await process_domain_with_own_session(submitted.id, other.host_port)
        assert other.requests == []
    (warning,) = logged(log_lines, "domain_mismatch")
    assert (warning["level"], warning["given"]) == ("warning", other.host_port)
    assert (await job_of(submitted.id)).status == "completed"


async def test_the_same_site_in_another_form_is_no_difference(
    monkeypatch: pytest.MonkeyPatch, log_lines: io.StringIO
) -> None:
    async with site() as server:
        allow(monkeypatch, server)
        submitted = await submit_server(server)
        await process_domain_with_own_session(submitted.id, server.base + "/")
    assert logged(log_lines, "domain_mismatch") == []


@pytest.mark.criterion("unknown-job-reported")
@pytest.mark.parametrize("job_id", [4711, "4711", "b4935fac-7e79-4a70-9f79-c76d6496111b"])
async def test_an_unknown_job_is_a_warning_and_no_error(
    job_id: int | str, log_lines: io.StringIO
) -> None:
    assert await process_domain_with_own_session(job_id, "example.com") is None
    (warning,) = logged(log_lines, "job_not_found")
    assert (warning["level"], warning["job_id"]) == ("warning", str(job_id))


@pytest.mark.criterion("call-signatures")
@pytest.mark.parametrize(
    ("given", "urls"),
    [({}, 3), ({"options": None}, 3), ({"options": {"max_urls": 2}}, 2), ({"max_urls": 1}, 1)],
)
async def test_options_may_name_the_limit(
    given: dict[str, Any], urls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site() as server:
        allow(monkeypatch, server)
        submitted = await submit_server(server)
        await process_domain_with_own_session(submitted.id, server.host_port, None, **given)
    job = await job_of(submitted.id)
    assert job.result_data is not None
    assert job.result_data["url_count"] == urls


async def test_the_lease_is_renewed_for_as_long_as_the_scan_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_session, "HEARTBEATS_PER_LEASE", 600)  # each 0.1 s
    answer = asyncio.Event()

    async def slow(_request: object) -> str:
        await answer.wait()
        return ""

    async with site() as server, asyncio.TaskGroup() as group:
        server.pages["/robots.txt"] = slow
        allow(monkeypatch, server)
        submitted = await submit_server(server)
        running = group.create_task(process_domain_with_own_session(submitted.id))
        await wait_until(lambda: server.paths == ["/robots.txt"])
        await let_lease_expire(submitted.id)
        expired = (await job_of(submitted.id)).lease_until

        async def is_renewed() -> bool:
            return (await job_of(submitted.id)).lease_until != expired

        await wait_until(is_renewed, seconds=5)
        assert await rescue_all() == []
        answer.set()
        assert await running == "completed"
