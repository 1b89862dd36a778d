"""Submitting a scan of chosen children of an index: what is stored, joined and refused."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy import select

from siteatlas.storage.models import Job
from tests.fixtures.database import transaction

SCAN = "/api/v3/sitemap/scan"
FILTER = {"include": ["*/blog-*"], "exclude": [], "since": "2026-01-31T00:00:00+00:00"}


async def submit(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await client.post(SCAN, json={"base_url": "example.com"} | fields)


async def stored_filter() -> Any:
    async with transaction() as session:
        job = (await session.execute(select(Job))).scalar_one()
        return (job.job_metadata or {}).get("child_filter")


async def test_a_job_remembers_its_filter(client: httpx.AsyncClient):
    answer = await submit(client, sitemaps=["*/blog-*"], sitemaps_since="2026-01-31")
    assert answer.status_code == 202
    assert await stored_filter() == FILTER


async def test_a_request_without_a_filter_drops_that_of_a_waiting_job(client: httpx.AsyncClient):
    await submit(client, sitemaps=["*/blog-*"])
    answer = await submit(client)
    assert (answer.status_code, answer.json()["deduplicated"]) == (202, True)
    assert await stored_filter() is None


async def test_empty_lists_are_no_filter(client: httpx.AsyncClient):
    assert (await submit(client, sitemaps=[], skip_sitemaps=[])).status_code == 202
    assert await stored_filter() is None


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"sitemaps": ["*"] * 21}, "#/sitemaps"),
        ({"sitemaps": [""]}, "#/sitemaps/0"),
        ({"skip_sitemaps": ["x" * 201]}, "#/skip_sitemaps/0"),
        ({"skip_sitemaps": [5]}, "#/skip_sitemaps/0"),
        ({"sitemaps": ["a\0"]}, "#/sitemaps/0"),
        ({"skip_sitemaps": ["\0"]}, "#/skip_sitemaps/0"),
        ({"sitemaps": "*"}, "#/sitemaps"),
        ({"sitemaps_since": "soon"}, "#/sitemaps_since"),
        ({"sitemaps_since": "1700000000"}, "#/sitemaps_since"),
        ({"sitemaps_since": 1700000000}, "#/sitemaps_since"),
    ],
)
async def test_invalid_filters_are_refused(
    client: httpx.AsyncClient, fields: dict[str, Any], pointer: str
):
    answer = await submit(client, **fields)
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


async def test_one_document_cannot_be_combined_with_a_filter(client: httpx.AsyncClient):
    answer = await submit(
        client, base_url="example.com/i.xml", only_document=True, sitemaps=["*/blog-*"]
    )
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "#/only_document")
