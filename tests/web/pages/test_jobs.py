"""The list of jobs counts what it shows, and the form to scan sites keeps lines it cannot use."""

from __future__ import annotations

import httpx
import pytest
from sqlalchemy import text

from siteatlas.meters import meters
from siteatlas.storage.models import Job
from tests.fixtures.application import BASE_URL
from tests.fixtures.database import transaction
from tests.fixtures.pipeline import rows_of
from tests.fixtures.records import add_domain, add_job
from tests.fixtures.web_pages import WebPage

pytestmark = pytest.mark.usefixtures("database")

COUNTS = "//nav[@aria-label='Status']//span[@class='count']/text()"


async def add_jobs(count: int, status: str = "completed") -> None:
    async with transaction() as session:
        for _ in range(count):
            await add_job(session, status=status)


async def test_the_chips_count_the_jobs_that_have_just_ended(client: httpx.AsyncClient):
    await add_jobs(1)
    assert WebPage(await client.get("/jobs")).find(COUNTS) == ["0", "0", "1", "0", "0"]
    await add_jobs(4)
    await add_jobs(2, "failed")
    page = WebPage(await client.get("/jobs"))
    assert page.find(COUNTS) == ["0", "0", "5", "2", "0"]
    assert len(page.find("//tbody/tr")) == 7


async def test_the_jobs_of_one_site_have_no_counts_of_all_sites(client: httpx.AsyncClient):
    await add_jobs(1)
    assert WebPage(await client.get("/jobs?domain=example.com")).find(COUNTS) == []


async def test_the_number_on_the_button_is_updated_with_the_rows(client: httpx.AsyncClient):
    await add_jobs(3, "failed")
    page = WebPage(await client.get("/jobs?status=failed"))
    assert "Retry all 3 failed jobs" in page.words("//div[@id='job-rows']//form[@class='row']")


async def post_sites(client: httpx.AsyncClient, *lines: str) -> httpx.Response:
    return await client.post(
        "/scan", data={"sites": "\r\n".join(lines)}, headers={"Origin": BASE_URL}
    )


async def test_good_lines_are_queued_and_bad_ones_stay_with_their_reasons(
    client: httpx.AsyncClient,
):
    answer = await post_sites(
        client, "a.example", "not a site", "# ours", "", "http://10.0.0.1/", "b.example"
    )
    page = WebPage(answer)
    assert answer.status_code == 200
    assert "2 scans queued." in page.words()
    field, fault = page.words("//main//textarea"), page.words("//div[@class='fault']")
    assert field.split("\n") == ["not a site", "http://10.0.0.1/"]
    assert "not a site This is not a valid site address." in fault
    assert "http://10.0.0.1/ Connections to this address are not allowed." in fault
    jobs = WebPage(await client.get("/jobs")).words("//tbody")
    assert "a.example" in jobs
    assert "b.example" in jobs


async def test_a_list_without_a_good_line_is_refused(client: httpx.AsyncClient):
    answer = await post_sites(client, "not a site")
    assert answer.status_code == 422
    assert "queued" not in WebPage(answer).words()


REFUSE_ONE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'full' USING ERRCODE = 'disk_full';
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON domains FOR EACH ROW
    WHEN (NEW.domain = 'b.example') EXECUTE FUNCTION refuse();
"""


async def test_lines_that_a_fault_left_stay_and_those_before_it_are_counted(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    # A full disk makes this process unhealthy for a minute, also for the tests after this one.
    monkeypatch.setattr(meters, "disk_full_until", 0.0)
    async with transaction() as session:
        for statement in REFUSE_ONE.strip().split(";\nCREATE TRIGGER"):
            trigger = (
                statement if statement.startswith("CREATE F") else "CREATE TRIGGER" + statement
            )
            await session.execute(text(trigger))
    try:
        answer = await post_sites(client, "a.example", "not a site", "b.example", "c.example")
    finally:
        async with transaction() as session:
            await session.execute(text("DROP FUNCTION refuse CASCADE"))
    page = WebPage(answer)
    assert answer.status_code == 200
    assert "1 scan queued." in page.words()
    field = page.words("//main//textarea").split("\n")
    assert field == ["not a site", "b.example", "c.example"]
    assert "not a site This is not a valid site address." in page.words("//div[@class='fault']")
    assert len(page.find("//div[@class='fault']/p")) == 1


async def act(client: httpx.AsyncClient, **fields: str | list[str]) -> httpx.Response:
    return await client.post("/jobs", data=fields, headers={"Origin": BASE_URL})


async def test_the_selected_jobs_are_retried_or_cancelled(client: httpx.AsyncClient):
    async with transaction() as session:
        failed = await add_job(session, await add_domain(session, "a.example"), status="failed")
        other = await add_job(session, await add_domain(session, "b.example"), status="failed")
        ended = await add_job(session, await add_domain(session, "c.example"), status="completed")
    numbers = [str(failed.id), str(ended.id)]
    page = WebPage(await client.get("/jobs?status=failed"))
    assert page.find("//input[@name='job']/@value") == [str(other.id), str(failed.id)]
    answer = await act(client, job=numbers, selected="retry", status="failed")
    page = WebPage(await client.get(answer.headers["location"]))
    message = page.words("//main//*[@role='status']")
    assert "1 job queued again, 1 job left unchanged." in message
    assert page.find("//nav[@aria-label='Status']/a[@aria-current]/text()")[0].strip() == "Failed"
    answer = await act(client, job=numbers, selected="cancel")
    page = WebPage(await client.get(answer.headers["location"]))
    assert "1 job cancelled, 1 job left" in page.words("//main//*[@role='status']")
    states = {job.id: job.status for job in await rows_of(Job)}
    assert states == {failed.id: "cancelled", other.id: "failed", ended.id: "completed"}


async def test_without_a_selection_no_job_is_changed(client: httpx.AsyncClient):
    await add_jobs(2, "failed")
    answer = await act(client, selected="retry", status="failed")
    assert answer.status_code == 422
    assert "Select at least one job first." in WebPage(answer).words()
    assert {job.status for job in await rows_of(Job)} == {"failed"}
