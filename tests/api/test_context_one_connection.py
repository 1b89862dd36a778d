"""Requests need one connection of the pool at a time, so that they never wait for one another.

A request that waits for a second connection while it holds one blocks all others as soon as there
are as many such requests as connections.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from uuid import uuid4

import httpx
import pytest_asyncio
from sqlalchemy import select

from siteatlas.access.keys import Installation
from siteatlas.access.limits import PUBLIC
from siteatlas.api.context import DatabaseProbe
from siteatlas.api.routes import marked_routes
from siteatlas.main import create_app
from siteatlas.queue.metrics import EndedJobs, database_state, queue_load
from siteatlas.settings import Settings
from siteatlas.storage.models import Domain
from siteatlas.storage.session import bind_database, create_database
from tests.fixtures.application import BASE_URL
from tests.fixtures.database import transaction
from tests.fixtures.records import add_sitemap

READ_PATHS = sorted(
    {
        route.path
        for route in marked_routes(create_app(Settings(), run_scheduler=False))
        if "GET" in route.methods and route.marks != (PUBLIC,) and route.path != "/events"
    }
)
QUERIES = {
    "/api/v3/domains/{domain}/urls/history": "?url=https://example.com/",
    "/domains/{domain}/url": "?url=https://example.com/",
}


@pytest_asyncio.fixture
async def client(database_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application with a single connection to the database.

    Its probes are patient: a busy machine may need three seconds, a blocked request needs forever.
    """
    database = create_database(database_url, pool_size=1)
    bind_database(database)
    app = create_app(
        Settings(),
        run_scheduler=False,
        database=database,
        installation=Installation(is_closed=False),
    )
    app.state.api.database_state = DatabaseProbe(database_state, 30)
    app.state.api.queue_load = DatabaseProbe(lambda session: queue_load(session, EndedJobs()), 30)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url=BASE_URL, timeout=60) as opened:
        yield opened
    bind_database(None)
    await database.close()


async def path_parameters(client: httpx.AsyncClient) -> dict[str, str]:
    """Values with which routes find a site, a job and a sitemap."""
    submitted = await client.post("/api/v3/domains", json={"domain": "example.com"})
    async with transaction() as session:
        domain = (await session.scalars(select(Domain))).one()
        sitemap = await add_sitemap(session, domain)
    return {
        "domain": "example.com",
        "job_id": submitted.json()["job_id"],
        "sitemap_id": str(sitemap.id),
        "seq": "1",
        "key_id": "abcdefgh",
    }


async def test_every_route_that_reads_needs_one_connection_at_a_time(client: httpx.AsyncClient):
    parameters = await path_parameters(client)
    statuses = {}
    for path in READ_PATHS:
        filled = re.sub(r"{(\w+)}", lambda name: parameters.get(name[1], str(uuid4())), path)
        response = await client.get(filled + QUERIES.get(path, ""))
        statuses[path] = response.status_code
    assert len(statuses) > 40
    assert {path: status for path, status in statuses.items() if status >= 500} == {}
    assert sum(status == 200 for status in statuses.values()) > 35


async def test_many_concurrent_requests_with_one_connection_are_all_answered(
    client: httpx.AsyncClient,
):
    await path_parameters(client)
    paths = ["/", "/jobs", "/system", "/findings", "/api/v3/domains/example.com/export"] * 6
    responses = await asyncio.gather(*(client.get(path) for path in paths))
    assert {response.status_code for response in responses} == {200}
