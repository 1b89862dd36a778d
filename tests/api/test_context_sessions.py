"""The session of a request ends before its answer is sent, and before the consumer is woken."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx
import pytest
import pytest_asyncio
from sqlalchemy import update
from starlette.types import Message, Receive, Scope, Send

from siteatlas.access.keys import Installation
from siteatlas.main import create_app
from siteatlas.settings import Settings
from siteatlas.storage.models import Job, JobStatus
from siteatlas.storage.session import Database
from tests.fixtures.application import BASE_URL
from tests.fixtures.connections import CountedConnections
from tests.fixtures.database import transaction

SCAN = "/api/v3/sitemap/scan"
READS = (
    "/api/v3/jobs",
    "/api/v3/jobs/{job}",
    "/api/v3/sitemap/status/{job}",
    "/api/v3/domains",
    "/api/v3/domains/example.com",
    "/api/v3/domains/example.com/urls",
    "/api/v3/jobs/999999999",
)
WRITES = {
    "add a site": ("/api/v3/domains", {"domain": "example.org"}),
    "submit a site": (SCAN, {"base_url": "example.org"}),
    "join a job": (SCAN, {"base_url": "example.com"}),
    "submit a batch": ("/api/v3/sitemap/batch/create", {"domains": ["example.org"]}),
    "retry a job": ("/api/v3/jobs/{job}/retry", None),
}


@dataclass
class Watched:
    """A client, and how many connections were in use when something left the application."""

    client: httpx.AsyncClient
    job: str
    at_answer: list[int]
    at_wake: list[int] = field(default_factory=list)


@pytest_asyncio.fixture
async def watched(database: Database) -> AsyncIterator[Watched]:
    # Its clock stands still, so that no refresh ahead of time takes a connection beside a request.
    installation = Installation(is_closed=False, clock=lambda: 0.0)
    app = create_app(Settings(), run_scheduler=False, database=database, installation=installation)
    counted = CountedConnections(database)
    at_answer: list[int] = []

    async def watching(scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            at_answer.append(counted.checked_out)
            await send(message)

        await app(scope, receive, sending)

    transport = httpx.ASGITransport(app=watching)
    async with httpx.AsyncClient(transport=transport, base_url=BASE_URL) as client:
        submitted = await client.post("/api/v3/domains", json={"domain": "example.com"})
        seen = Watched(client, submitted.json()["job_id"], at_answer)
        app.state.api.wake = lambda: seen.at_wake.append(counted.checked_out)
        yield seen


@pytest.mark.parametrize("path", READS)
async def test_an_answer_is_sent_when_its_connection_is_free_again(watched: Watched, path: str):
    await watched.client.get(path.format(job=watched.job))
    assert watched.at_answer
    assert set(watched.at_answer) == {0}


@pytest.mark.parametrize(("path", "body"), WRITES.values(), ids=WRITES)
async def test_the_consumer_is_woken_when_the_job_is_committed(
    watched: Watched, path: str, body: dict[str, object] | None
):
    if body is None:
        async with transaction() as session:
            await session.execute(update(Job).values(status=JobStatus.FAILED))
    answer = await watched.client.post(path.format(job=watched.job), json=body)
    assert answer.is_success, answer.text
    assert watched.at_wake == [0]
    assert set(watched.at_answer) == {0}
