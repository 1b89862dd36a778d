"""The log of a running scan: one event per line, each with its job and site."""

from __future__ import annotations

import io

import pytest
from aiohttp import web
from sqlalchemy import func, text

from siteatlas.errors import SiteatlasError
from siteatlas.storage.session import bound_database
from tests.fixtures.log_lines import events, log_lines, logged
from tests.fixtures.pipeline import (
    index,
    pages,
    scan_server,
    settings_for,
    submit_server,
    urlset,
    work,
)
from tests.fixtures.queue import change
from tests.fixtures.site_server import SiteServer

__all__ = ["log_lines"]
pytestmark = pytest.mark.usefixtures("database")


@pytest.mark.criterion("key-operations-logged", "log-sentences")
async def test_each_phase_of_a_job_is_logged_with_job_and_site(log_lines: io.StringIO) -> None:
    site = {
        "/robots.txt": "Sitemap: {base}/index.xml\n",
        "/index.xml": index(["{base}/a.xml"]),
        "/a.xml": urlset(pages("a", 3)),
    }
    async with SiteServer(site) as server:
        job = await scan_server(server)
    lines = [line for line in events(log_lines) if line["logger"] == "processor"]
    names = [line["event"] for line in lines]
    assert names[:3] == ["job_started", "scan_started", "robots_read"]
    assert names.count("document_read") == 2
    assert names[-2:] == ["scan_published", "job_ended"]
    assert {line["job_id"] for line in lines} == {str(job.job_id)}
    assert {line["domain"] for line in lines} == {server.host_port}


@pytest.mark.criterion("key-operations-logged", "errors-logged", "log-sentences")
async def test_a_tick_says_what_it_looked_for_and_found(log_lines: io.StringIO) -> None:
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 1))}) as server:
        await submit_server(server)
        await work(settings_for(server), limit=7)
    by_name = {line["event"]: line for line in events(log_lines)}
    assert by_name["tick_started"]["looked_for"] == 7
    assert by_name["tick_ended"]["found"] == 1
    assert by_name["job_claimed"]["domain"] == server.host_port


@pytest.mark.criterion("errors-logged")
async def test_a_failure_is_logged_with_its_code(log_lines: io.StringIO) -> None:
    async with SiteServer() as server:
        await scan_server(server)
    (failed,) = logged(log_lines, "job_failed")
    assert (failed["error_code"], failed["transient"]) == ("no_sitemap", False)


@pytest.mark.criterion("errors-logged")
async def test_a_final_failure_is_a_warning_and_one_that_is_retried_is_not(
    log_lines: io.StringIO,
) -> None:
    async with SiteServer({"/robots.txt": lambda _request: web.Response(status=503)}) as server:
        settings = settings_for(server)
        job = await submit_server(server, max_attempts=2)
        for _ in range(2):
            await change(job.id, run_at=func.now())
            await work(settings)
    failures = logged(log_lines, "job_failed")
    assert [(line["level"], line["retried"]) for line in failures] == [
        ("info", True),
        ("warning", False),
    ]
    assert {line["error_code"] for line in failures} == {"robots_unreachable"}
    assert failures[1]["error"]


async def test_line_breaks_from_outside_never_start_a_new_log_line(log_lines: io.StringIO) -> None:
    async with SiteServer({"/robots.txt": "Sitemap: {base}/a%0Ab.xml\n"}) as server:
        await scan_server(server)
    assert "job_failed" in {line["event"] for line in events(log_lines)}


async def test_an_address_that_is_refused_is_logged_with_the_reason(log_lines: io.StringIO) -> None:
    away = web.Response(status=302, headers={"Location": "http://10.0.0.1/a.xml"})
    robots = "Sitemap: {base}/a.xml"
    async with SiteServer({"/robots.txt": robots, "/a.xml": away}) as server:
        await scan_server(server)
    (denied,) = [line for line in events(log_lines) if line["event"] == "egress_denied"]
    assert (denied["host"], denied["port"], denied["reason"]) == ("10.0.0.1", 80, "address")


@pytest.mark.criterion("no-prepare")
async def test_the_engine_carries_the_option_that_the_standard_asks_for() -> None:
    assert bound_database().engine.get_execution_options()["no_prepare"] is True


@pytest.mark.criterion("errors-logged")
async def test_a_crash_is_logged_with_its_trace_and_stored_without_it(
    log_lines: io.StringIO,
) -> None:
    async with bound_database().engine.begin() as connection:
        await connection.execute(text("ALTER TABLE sitemap_urls ADD CHECK (false)"))
    async with SiteServer({"/sitemap.xml": urlset(pages("a", 1))}) as server:
        job = await scan_server(server)
    (crash,) = [line for line in events(log_lines) if line["event"] == "job_crashed"]
    assert "sitemap_urls" in str(crash["exception"])
    assert (job.status, job.error_code) == ("pending", "internal_error")
    assert job.error == SiteatlasError().message
