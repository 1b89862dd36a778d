"""How often a site may put a job off: as long as documents are read in between, without end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from siteatlas.net.egress import EgressPolicy
from siteatlas.processor.processing import Processor
from siteatlas.processor.steps import JobActivity
from siteatlas.queue.completion import MAX_SNOOZES
from siteatlas.storage.models import Job
from tests.fixtures.pipeline import pages, settings_for, submit_server, urlset
from tests.fixtures.queue import change, job_of, take_one
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.usefixtures("database")


def rate_limited(_request: object) -> web.Response:
    return web.Response(status=429, headers={"Retry-After": "120"})


async def hanging(_request: object) -> str:
    await asyncio.sleep(30)
    return ""


async def often_put_off(server: SiteServer) -> tuple[int, asyncio.Task[Any]]:
    """A job that was put off as often as it may be, and its next attempt."""
    submitted = await submit_server(server)
    await change(submitted.id, snoozes=MAX_SNOOZES)
    settings = settings_for(server)
    processor = Processor(settings, EgressPolicy.from_text(settings.egress_allow))
    return submitted.id, asyncio.create_task(processor.run(await take_one(), JobActivity()))


async def after_reading(answer_of_first: object) -> Job:
    """The job after an attempt that ended while it read its second document."""
    site: dict[str, Any] = {
        "/robots.txt": "Sitemap: {base}/a.xml\nSitemap: {base}/b.xml\n",
        "/a.xml": answer_of_first,
        "/b.xml": hanging,
    }
    async with SiteServer(site) as server:
        job_id, attempt = await often_put_off(server)
        await wait_until(lambda: {"/a.xml", "/b.xml"} <= set(server.paths))
        await asyncio.sleep(0.3)
        attempt.cancel()
        await asyncio.gather(attempt, return_exceptions=True)
    return await job_of(job_id)


async def test_a_document_that_was_read_clears_the_count() -> None:
    assert (await after_reading(urlset(pages("a", 3)))).snoozes == 0


async def test_a_document_that_could_not_be_read_does_not() -> None:
    missing = await after_reading(lambda _request: web.Response(status=404))
    assert missing.snoozes == MAX_SNOOZES


async def test_a_job_is_put_off_by_the_count_of_now_and_not_by_that_of_its_claim() -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def limited_later(request: object) -> web.Response:
        asked.set()
        await answer.wait()
        return rate_limited(request)

    async with SiteServer({"/robots.txt": limited_later}) as server:
        job_id, attempt = await often_put_off(server)
        await asked.wait()
        await change(job_id, snoozes=0)
        answer.set()
        await attempt
    job = await job_of(job_id)
    assert (job.status, job.attempt, job.snoozes) == ("pending", 0, 1)


async def test_a_job_that_was_put_off_too_often_uses_up_an_attempt() -> None:
    async with SiteServer({"/robots.txt": rate_limited}) as server:
        job_id, attempt = await often_put_off(server)
        await attempt
    job = await job_of(job_id)
    assert (job.status, job.attempt, job.error_code) == ("pending", 1, "rate_limited")
