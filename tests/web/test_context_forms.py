"""Forms of the dashboard work as plain HTML forms: submit, then see the result."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import update

from siteatlas.access.keys import Scope
from siteatlas.storage.models import Domain, Job, JobStatus
from siteatlas.storage.session import get_session
from tests.fixtures.access import client_with, make_key
from tests.fixtures.database import transaction
from tests.fixtures.pipeline import rows_of
from tests.fixtures.records import add_unfinished_scan
from tests.fixtures.web_pages import WebPage

pytestmark = pytest.mark.usefixtures("database")


async def test_a_submitted_site_leads_to_its_job(client: httpx.AsyncClient):
    response = await client.post("/scan", data={"sites": "example.com", "watch": "on"})
    (job,) = await rows_of(Job)
    assert (response.status_code, response.headers["location"]) == (303, f"/jobs/{job.id}")
    (site,) = await rows_of(Domain)
    assert (site.domain, site.watched) == ("example.com", True)


async def test_several_sites_lead_to_the_list_of_jobs(client: httpx.AsyncClient):
    response = await client.post("/scan", data={"sites": "example.com\nexample.org"})
    location = response.headers["location"]
    assert location == "/jobs?queued=2"
    assert "2 scans queued." in WebPage(await client.get(location)).words()
    assert sorted(site.domain for site in await rows_of(Domain)) == ["example.com", "example.org"]
    assert not any(site.watched for site in await rows_of(Domain))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sites": ""}, "Enter a host"),
        ({"sites": "ftp://example.org"}, "ftp://example.org"),
        ({"sites": "http://127.0.0.1"}, "127.0.0.1"),
        ({"sites": "example.com", "max_urls": "0"}, "number from 1"),
    ],
)
async def test_a_bad_entry_is_named_and_kept_in_the_form(
    client: httpx.AsyncClient, fields: dict[str, str], words: str
):
    response = await client.post("/scan", data=fields)
    assert response.status_code == 422
    page = WebPage(response)
    assert words in page.words("//main//*[@class='fault']")
    assert page.words("//main//textarea").strip() == fields["sites"]
    assert await rows_of(Job) == []


async def test_a_waiting_job_can_be_cancelled_and_retried(client: httpx.AsyncClient):
    await client.post("/scan", data={"sites": "example.com"})
    (job,) = await rows_of(Job)
    await client.post(f"/jobs/{job.id}/cancel")
    assert [job.status for job in await rows_of(Job)] == ["cancelled"]
    await client.post(f"/jobs/{job.id}/retry")
    assert [job.status for job in await rows_of(Job)] == ["pending"]


async def test_all_jobs_that_match_are_cancelled_at_once(client: httpx.AsyncClient):
    await client.post("/scan", data={"sites": "a.example\nb.example\nc.example"})
    await client.post("/jobs", data={"status": "pending", "domain": "", "action": "cancel"})
    assert {job.status for job in await rows_of(Job)} == {"cancelled"}


async def test_after_the_cancel_of_all_waiting_jobs_the_counters_of_sites_equal_the_rows(
    client: httpx.AsyncClient,
):
    await client.post("/scan", data={"sites": "a.example\nb.example"})
    for job in await rows_of(Job):
        async with transaction() as session:
            await add_unfinished_scan(session, job.id)
    await client.post("/jobs", data={"status": "pending", "domain": "", "action": "cancel"})
    counters = [(site.sitemap_count, site.url_count) for site in await rows_of(Domain)]
    assert counters == [(1, 3), (1, 3)]


async def test_the_settings_of_a_site_are_saved(client: httpx.AsyncClient):
    await client.post("/scan", data={"sites": "example.com"})
    fields = {"watched": "on", "interval": "6", "max_urls": "500"}
    response = await client.post("/domains/example.com/settings", data=fields)
    assert response.headers["location"].startswith("/domains/example.com?tab=settings")
    (site,) = await rows_of(Domain)
    assert (site.watched, site.scan_interval_hours, site.max_pages) == (True, 6.0, 500)


async def test_saving_settings_does_not_make_a_watched_site_due(client: httpx.AsyncClient):
    await client.post("/scan", data={"sites": "example.com", "watch": "on"})
    (before,) = await rows_of(Domain)
    fields = {"watched": "on", "interval": "", "max_urls": "7"}
    await client.post("/domains/example.com/settings", data=fields)
    (after,) = await rows_of(Domain)
    assert (after.max_pages, after.next_scan_at) == (7, before.next_scan_at)


async def test_an_emptied_setting_is_set_to_the_default(client: httpx.AsyncClient):
    await client.post("/scan", data={"sites": "example.com"})
    full = {"watched": "on", "interval": "6", "max_urls": "500"}
    await client.post("/domains/example.com/settings", data=full)
    empty = {"watched": "on", "interval": "", "max_urls": ""}
    await client.post("/domains/example.com/settings", data=empty)
    (site,) = await rows_of(Domain)
    assert (site.watched, site.scan_interval_hours, site.max_pages) == (True, None, None)


async def test_selected_sites_are_paused_and_removed(client: httpx.AsyncClient):
    await client.post("/scan", data={"sites": "a.example\nb.example", "watch": "on"})
    chosen = {"domain": ["a.example", "b.example"]}
    await client.post("/domains", data={**chosen, "action": "pause"})
    assert all(site.paused for site in await rows_of(Domain))
    await client.post("/jobs", data={"status": "pending", "action": "cancel"})
    await client.post("/domains", data={**chosen, "action": "remove", "confirmed": "1"})
    assert all(site.deleted_at is not None for site in await rows_of(Domain))


async def fail_all_jobs() -> None:
    async with get_session() as session, session.begin():
        await session.execute(update(Job).values(status=JobStatus.FAILED))


async def test_all_failed_jobs_are_retried_also_if_a_site_has_several(
    app: FastAPI, client: httpx.AsyncClient
):
    woken: list[str] = []
    await client.post("/scan", data={"sites": "a.example"})
    await fail_all_jobs()
    await client.post("/scan", data={"sites": "a.example\nb.example"})
    await fail_all_jobs()
    app.state.api.wake = lambda: woken.append("woken")
    retry = {"status": "failed", "domain": "", "action": "retry"}
    response = await client.post("/jobs", data=retry)
    assert [job.status for job in sorted(await rows_of(Job), key=lambda job: job.id)] == [
        "failed",
        "pending",
        "pending",
    ]
    assert woken == ["woken"]
    page = WebPage(await client.get(response.headers["location"]))
    assert "2 jobs queued again, 1 job left unchanged." in page.words("//main//*[@role='status']")
    assert (await client.post("/jobs", data=retry)).headers["location"].endswith("changed=0&left=1")


async def test_a_selected_site_that_cannot_be_changed_does_not_stop_the_others(app: FastAPI):
    async with client_with(app, await make_key(Scope.READ, Scope.SCAN, user="ann")) as ann:
        await ann.post("/api/v3/domains", json={"domain": "a.example"})
    async with client_with(app, await make_key(Scope.READ, Scope.SCAN, user="bob")) as bob:
        await bob.post("/api/v3/domains", json={"domain": "b.example"})
        fields = {"domain": ["a.example", "b.example", "unknown.example"], "action": "pause"}
        response = await bob.post("/domains", data=fields)
        assert response.status_code == 303
        page = WebPage(await bob.get(response.headers["location"]))
    assert {site.domain: site.paused for site in await rows_of(Domain)} == {
        "a.example": False,
        "b.example": True,
    }
    assert "1 site paused, 2 sites left unchanged." in page.words("//main//*[@role='status']")


async def test_a_form_with_too_many_fields_is_refused(cut_off_client: httpx.AsyncClient):
    response = await cut_off_client.post("/domains", data={"domain": ["a"] * 1_001})
    assert response.status_code == 422
    assert "at most 1,000 fields" in WebPage(response).words("//main")


@pytest.mark.parametrize(
    ("query", "location"),
    [
        ("17", "/jobs/17"),
        ("example.com", "/domains/example.com"),
        ("https://www.example.com/shop/", "/domains/example.com?tab=urls&contains=%2Fshop%2F"),
        ("exam", "/domains?q=exam"),
    ],
)
async def test_the_search_field_leads_to_what_was_meant(
    client: httpx.AsyncClient, query: str, location: str
):
    await client.post("/scan", data={"sites": "example.com"})
    response = await client.get("/search", params={"q": query})
    assert (response.status_code, response.headers["location"]) == (303, location)


async def test_a_form_of_another_site_is_refused(client: httpx.AsyncClient):
    headers = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    response = await client.post("/scan", data={"sites": "example.com"}, headers=headers)
    assert response.status_code == 403
    assert await rows_of(Job) == []
