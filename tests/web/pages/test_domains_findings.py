"""The page of findings: all who ask for it at the same time share one statement."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from sqlalchemy import text as sql

from tests.fixtures.database import transaction
from tests.fixtures.transactions import watched_transactions

pytestmark = pytest.mark.usefixtures("database")

REQUESTS = 3


@pytest.mark.slow
async def test_requests_that_wait_for_the_totals_share_their_error(client: httpx.AsyncClient):
    async with transaction() as locking:
        await locking.execute(sql("LOCK TABLE findings"))
        with watched_transactions() as watched:
            asked = [client.get("/findings") for _ in range(REQUESTS)]
            answers = await asyncio.gather(*asked)
    assert [answer.status_code for answer in answers] == [503] * REQUESTS
    sent = [text for one in watched.all for text in one.statements if "FROM findings" in text]
    assert len(sent) == 1
    assert (await client.get("/findings")).status_code == 200


async def test_the_former_address_of_the_page_leads_to_it(client: httpx.AsyncClient):
    answer = await client.get("/problems")
    assert (answer.status_code, answer.headers["location"]) == (303, "/findings")
