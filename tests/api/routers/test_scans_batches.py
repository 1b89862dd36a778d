"""Many sites submitted together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import update

from siteatlas.storage.models import Job
from tests.fixtures.database import transaction

CREATE = "/api/v3/sitemap/batch/create"
START = datetime(2025, 1, 1, tzinfo=UTC)


async def create(client: httpx.AsyncClient, *domains: str, **body: object) -> dict[str, Any]:
    response = await client.post(CREATE, json={"domains": list(domains)} | body)
    assert response.status_code == 202, response.text
    assert response.headers["location"] == response.json()["status_url"]
    answer: dict[str, Any] = response.json()
    return answer


async def status(client: httpx.AsyncClient, batch: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = (await client.get(batch["status_url"])).json()
    return answer


async def end(item: dict[str, Any], word: str, **columns: object) -> None:
    async with transaction() as session:
        values = {"started_at": START, "finished_at": START + timedelta(seconds=3)} | columns
        await session.execute(
            update(Job).where(Job.job_id == item["job_id"]).values(status=word, **values)
        )


@pytest.mark.criterion("single-and-batch")
async def test_good_sites_are_queued_and_bad_ones_named(client: httpx.AsyncClient):
    batch = await create(client, "example.com", "http://10.0.0.1", "example.org", max_pages=5)
    assert (batch["status"], batch["total_domains"]) == ("pending", 3)
    assert [item["domain"] for item in batch["items"]] == [
        "example.com",
        "http://10.0.0.1",
        "example.org",
    ]
    assert [item["error_code"] for item in batch["items"]] == [None, "egress_denied", None]
    assert [item["job_id"] is None for item in batch["items"]] == [False, True, False]


async def test_a_site_named_twice_shares_one_job(client: httpx.AsyncClient):
    batch = await create(client, "example.com", "https://www.example.com/")
    assert batch["items"][0]["job_id"] == batch["items"][1]["job_id"]


async def test_a_name_given_twice_counts_once_everywhere(client: httpx.AsyncClient):
    batch = await create(client, "example.com", "example.org", "example.com")
    answer = await status(client, batch)
    assert batch["total_domains"] == answer["total_domains"] == 2
    assert [item["domain"] for item in batch["items"]] == list(answer["domain_statuses"])


async def test_a_partial_site_is_completed_and_says_what_is_missing(client: httpx.AsyncClient):
    batch = await create(client, "example.com", "example.org", "10.0.0.1")
    lost = {"domain": "example.com", "partial": True, "reasons": ["truncated"]}
    whole = {"domain": "example.org", "partial": False, "reasons": []}
    await end(batch["items"][0], "completed", result_data=lost)
    await end(batch["items"][1], "completed", result_data=whole)
    answer = await status(client, batch)
    assert (answer["completed_domains"], answer["partial_domains"]) == (2, 1)
    told = {
        name: (one["status"], one["partial"], one["reasons"])
        for name, one in answer["domain_statuses"].items()
    }
    assert told == {
        "example.com": ("completed", True, ["truncated"]),
        "example.org": ("completed", False, []),
        "10.0.0.1": ("failed", None, []),
    }


async def test_a_batch_without_a_usable_site_is_refused(cut_off_client: httpx.AsyncClient):
    response = await cut_off_client.post(CREATE, json={"domains": ["10.0.0.1", ""]})
    problem = response.json()
    assert (response.status_code, problem["code"]) == (422, "input_invalid")
    assert [(error["pointer"], error["code"]) for error in problem["errors"]] == [
        ("#/domains/0", "egress_denied"),
        ("#/domains/1", "address_empty"),
    ]


@pytest.mark.parametrize(
    "domains", [[], ["example.com"] * 1001, "example.com", None, [1], [None], [["example.com"]]]
)
async def test_a_list_of_the_wrong_shape_is_refused(
    cut_off_client: httpx.AsyncClient, domains: object
):
    response = await cut_off_client.post(CREATE, json={"domains": domains})
    assert (response.status_code, response.json()["code"]) == (422, "input_invalid")


async def test_a_thousand_long_names_fit_into_one_request(client: httpx.AsyncClient):
    bad = [f"http://10.0.0.1/{'x' * 900}/{n}" for n in range(999)]
    batch = await create(client, "example.com", *bad)
    assert batch["total_domains"] == 1000


async def test_a_name_that_cannot_be_stored_is_named_all_the_same(client: httpx.AsyncClient):
    batch = await create(client, "example.com", "nul\x00.example")
    assert batch["items"][1] == {
        "domain": "nul\ufffd.example",
        "job_id": None,
        "error_code": "address_invalid",
    }


async def test_a_new_batch_waits(client: httpx.AsyncClient):
    batch = await create(client, "example.com", "10.0.0.1")
    answer = await status(client, batch)
    assert (answer["status"], answer["progress"]) == ("pending", 0.5)
    assert (answer["completed_domains"], answer["failed_domains"]) == (0, 1)
    assert answer["domain_statuses"]["example.com"]["status"] == "pending"
    assert answer["domain_statuses"]["10.0.0.1"]["error_code"] == "egress_denied"


async def test_a_batch_is_processing_while_one_job_is_not_ended(client: httpx.AsyncClient):
    batch = await create(client, "example.com", "example.org")
    await end(batch["items"][0], "failed", error_code="no_sitemap", error="None.")
    answer = await status(client, batch)
    assert (answer["status"], answer["end_time"]) == ("processing", None)


@pytest.mark.criterion("single-and-batch")
async def test_an_ended_batch_has_counts_and_times(client: httpx.AsyncClient):
    batch = await create(client, "example.com", "example.org", max_pages=9)
    await end(batch["items"][0], "completed")
    await end(batch["items"][1], "failed", error_code="no_sitemap", error="None.")
    answer = await status(client, batch)
    assert (answer["status"], answer["progress"]) == ("completed", 1.0)
    assert (answer["completed_domains"], answer["failed_domains"]) == (1, 1)
    assert answer["processing_time"] == 3.0
    assert answer["metadata"] == {"max_pages": 9}
    assert answer["domain_statuses"]["example.org"]["error_code"] == "no_sitemap"
    assert answer["domain_statuses"]["example.com"]["processing_time"] == 3.0


@pytest.mark.parametrize("word", ["failed", "cancelled"])
async def test_a_batch_of_which_nothing_succeeded_says_so(client: httpx.AsyncClient, word: str):
    batch = await create(client, "example.com")
    await end(batch["items"][0], word)
    assert (await status(client, batch))["status"] == word


async def test_an_unknown_batch_is_404_and_a_malformed_id_422(client: httpx.AsyncClient):
    unknown = await client.get(f"/api/v3/sitemap/batch/status/{uuid4()}")
    malformed = await client.get("/api/v3/sitemap/batch/status/7")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "batch_not_found")
    assert (malformed.status_code, malformed.json()["code"]) == (422, "input_invalid")
