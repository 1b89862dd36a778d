"""Submitting a site and following its scan."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID, uuid4

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import func, select
from structlog.testing import capture_logs

from siteatlas.queue.fence import WorkerReport, report_worker
from siteatlas.storage.models import LOCAL_USER_ID, Domain, Job
from tests.fixtures.database import transaction

SCAN = "/api/v3/sitemap/scan"


async def submit(client: httpx.AsyncClient, **body: object) -> httpx.Response:
    return await client.post(SCAN, json={"base_url": "example.com"} | body)


@pytest.mark.criterion("submit-stores-job", "single-and-batch")
async def test_a_submitted_site_becomes_a_pending_job(client: httpx.AsyncClient):
    response = await submit(client, max_pages=100)
    answer = response.json()
    assert response.status_code == 202
    assert answer["status"] == "pending"
    assert (answer["deduplicated"], answer["max_pages"]) == (False, 100)
    assert answer["status_url"] == f"/api/v3/sitemap/status/{UUID(answer['job_id'])}"
    assert response.headers["location"] == answer["status_url"]
    async with transaction() as session:
        job = (await session.execute(select(Job))).scalar_one()
    assert (str(job.job_id), job.created_by) == (answer["job_id"], LOCAL_USER_ID)


async def test_without_a_limit_the_answer_names_none(client: httpx.AsyncClient):
    assert (await submit(client)).json()["max_pages"] is None


@pytest.mark.criterion("submit-stores-job")
async def test_the_status_answers_by_uuid_and_by_number(client: httpx.AsyncClient):
    submitted = (await submit(client, max_pages=7)).json()
    by_uuid = (await client.get(submitted["status_url"])).json()
    by_number = (await client.get(f"/api/v3/sitemap/status/{by_uuid['id']}")).json()
    assert by_uuid == by_number
    assert by_uuid["job_id"] == submitted["job_id"]
    assert by_uuid["result_data"] == {"domain": "example.com", "max_pages": 7}


@pytest.mark.criterion("status-life")
async def test_the_status_has_exactly_the_promised_fields(client: httpx.AsyncClient):
    submitted = (await submit(client)).json()
    status = (await client.get(submitted["status_url"])).json()
    promised = (
        "job_id id status progress domain domain_id created_by result_data error error_code "
        "attempt created_at started_at finished_at updated_at"
    )
    assert sorted(status) == sorted(promised.split())


@pytest.mark.criterion("unknown-job-reported")
async def test_the_status_of_an_unknown_job_is_404(client: httpx.AsyncClient):
    for ident in (str(uuid4()), "123456", "-5", "0"):
        response = await client.get(f"/api/v3/sitemap/status/{ident}")
        assert (response.status_code, response.json()["code"]) == (404, "job_not_found")


@pytest.mark.parametrize(
    "ident", ["nonsense", "1.5", "9223372036854775808", "%00", "１２", "x" * 90]
)
async def test_a_malformed_job_id_is_422(cut_off_client: httpx.AsyncClient, ident: str):
    response = await cut_off_client.get(f"/api/v3/sitemap/status/{ident}")
    assert (response.status_code, response.json()["code"]) == (422, "input_invalid")


async def test_a_second_submit_joins_the_active_job(client: httpx.AsyncClient):
    first = (await submit(client, max_pages=10)).json()
    second = (await submit(client, base_url="https://www.example.com/", max_pages=20)).json()
    assert second["job_id"] == first["job_id"]
    assert (second["deduplicated"], second["max_pages"]) == (True, 20)


async def test_fifty_parallel_submits_give_one_active_job(client: httpx.AsyncClient):
    answers = await asyncio.gather(*(submit(client, max_pages=n + 1) for n in range(50)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    assert sum(not answer.json()["deduplicated"] for answer in answers) == 1
    async with transaction() as session:
        (limit,) = await session.scalars(select(Job.result_data["max_pages"]))
        assert limit == 50


@pytest.mark.parametrize("widest", [9, None], ids=["largest", "none"])
async def test_the_widest_of_many_limits_wins_however_the_submits_meet(
    client: httpx.AsyncClient, widest: int | None
):
    for number in range(10):
        site = f"s{number}.example.com"
        await submit(client, base_url=site, max_pages=1)
        limits = [2, widest, 3, 4, 5, 6, 7, 8]
        await asyncio.gather(*(submit(client, base_url=site, max_pages=n) for n in limits))
    async with transaction() as session:
        data = (await session.scalars(select(Job.result_data))).all()
        assert [job and job["max_pages"] for job in data] == [widest] * 10


async def test_a_watched_site_is_not_due_before_its_interval(client: httpx.AsyncClient):
    await submit(client, watch=True)
    async with transaction() as session:
        due = Domain.next_scan_at > func.now() + timedelta(hours=23)
        assert (await session.scalars(select(due))).all() == [True]


async def test_a_site_is_watched_only_when_asked(client: httpx.AsyncClient):
    await submit(client)
    await submit(client, base_url="example.org", watch=True)
    async with transaction() as session:
        rows = await session.execute(select(Domain.domain, Domain.watched))
        assert {row.domain: row.watched for row in rows} == {
            "example.com": False,
            "example.org": True,
        }


@pytest.mark.criterion("input-validated")
@pytest.mark.parametrize(
    ("base_url", "code"),
    [
        ("", "address_empty"),
        ("   ", "address_empty"),
        ("ftp://example.com", "address_scheme"),
        ("https://user:pw@example.com", "address_credentials"),
        ("https://exa mple.com", "address_invalid"),
        ("a" * 3000, "address_too_long"),
        ("http://127.0.0.1", "egress_denied"),
        ("http://[::1]/", "egress_denied"),
        ("localhost", "egress_denied"),
        ("http://169.254.169.254/latest", "egress_denied"),
        ("https://example.com:22", "egress_denied"),
    ],
)
async def test_an_address_that_cannot_be_scanned_is_refused_by_name(
    cut_off_client: httpx.AsyncClient, base_url: str, code: str
):
    response = await submit(cut_off_client, base_url=base_url)
    problem = response.json()
    assert (response.status_code, problem["code"]) == (422, code)
    assert problem["errors"][0]["pointer"] == "#/base_url"


async def test_a_refused_address_leaves_nothing_behind(client: httpx.AsyncClient):
    await submit(client, base_url="http://10.0.0.1")
    async with transaction() as session:
        assert await session.scalar(select(func.count()).select_from(Domain)) == 0


async def test_the_consumer_is_woken_after_the_commit(app: FastAPI, client: httpx.AsyncClient):
    woken: list[str] = []
    app.state.api.wake = lambda: woken.append("woken")
    response = await submit(client)
    assert (woken, response.json()["warning"]) == (["woken"], None)


@pytest.mark.criterion("submit-does-no-work")
async def test_a_submit_that_nobody_will_run_is_answered_with_a_warning(client: httpx.AsyncClient):
    assert "siteatlas worker" in (await submit(client)).json()["warning"]


async def test_a_living_worker_elsewhere_ends_the_warning(client: httpx.AsyncClient):
    async with transaction() as session:
        await report_worker(session, WorkerReport("w", "host", 1, "0.1", slots=1, running=0))
    assert (await submit(client)).json()["warning"] is None


@pytest.mark.criterion("submit-logged", "key-operations-logged", "log-sentences")
async def test_each_submit_is_logged_once(client: httpx.AsyncClient):
    with capture_logs() as lines:
        answer = (await submit(client)).json()
    (line,) = [line for line in lines if line["event"] == "job_submitted"]
    assert (str(line["job_id"]), line["domain"]) == (answer["job_id"], "example.com")


@pytest.mark.parametrize(
    ("path", "body", "shown"),
    [
        (SCAN, {"base_url": "example.com"}, True),
        ("/api/v3/domains", {"domain": "example.com"}, True),
        ("/api/v3/sitemap/batch/create", {"domains": ["example.com"]}, False),
    ],
)
async def test_the_limit_may_have_its_former_name_but_not_two_values(
    client: httpx.AsyncClient, path: str, body: dict[str, object], shown: bool
) -> None:
    for limits in ({"max_urls": 7}, {"max_pages": 7}, {"max_urls": 7, "max_pages": 7}):
        answer = await client.post(path, json=body | limits)
        assert answer.is_success, answer.text
        if shown:
            assert (answer.json()["max_urls"], answer.json()["max_pages"]) == (7, 7)
    refused = await client.post(path, json=body | {"max_urls": 7, "max_pages": 8})
    assert refused.status_code == 422
    assert "max_pages is the former name of max_urls" in refused.text


async def test_the_limit_of_a_site_is_changed_under_both_names(client: httpx.AsyncClient) -> None:
    await client.post("/api/v3/domains", json={"domain": "example.com"})
    for limits in ({"max_urls": 5}, {"max_pages": 6}, {"tags": ["shop"]}):
        answer = await client.patch("/api/v3/domains/example.com", json=limits)
        expected = next(iter(limits.values())) if "tags" not in limits else 6
        assert (answer.json()["max_urls"], answer.json()["max_pages"]) == (expected, expected)
