"""The limit on queued scans holds for every way to queue a scan, and for concurrent requests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from uuid import UUID

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import func, select

from siteatlas.access import limits as queue_room
from siteatlas.access.keys import Scope
from siteatlas.queue.submission import lock_pending
from siteatlas.storage.models import SYSTEM_USER_ID, Job, User
from siteatlas.storage.session import Database
from tests.fixtures.access import application, client_with, make_key
from tests.fixtures.connections import CountedConnections
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_job
from tests.fixtures.transactions import counted_statements
from tests.fixtures.waiting import wait_until

BATCH = "/api/v3/sitemap/batch/create"
IMPORT = "/api/v3/domains/import"
SCAN = "/api/v3/sitemap/scan"
MAX_QUEUED = 3
RetryOrRelease = Callable[[httpx.AsyncClient, int], Awaitable[httpx.Response]]
SubmitList = Callable[[httpx.AsyncClient, str], Awaitable[httpx.Response]]


@pytest.fixture
def app(database: Database) -> FastAPI:
    return application(database, max_queued_scans=MAX_QUEUED)


async def id_of_ann() -> UUID:
    async with transaction() as session:
        return (await session.execute(select(User.id).where(User.name == "ann"))).scalar_one()


async def jobs_of_ann(*statuses: str) -> list[int]:
    return await jobs_of(await id_of_ann(), *statuses)


async def jobs_of(user: UUID, *statuses: str, name: str = "s") -> list[int]:
    """Jobs of a user, each of another site."""
    async with transaction() as session:
        held = {"removals_held_since": datetime.now(UTC), "missing_count": 1, "created_by": user}
        return [
            (
                await add_job(
                    session,
                    await add_domain(session, f"{name}{number}.example.com", **held),
                    status=status,
                    created_by=user,
                )
            ).id
            for number, status in enumerate(statuses)
        ]


async def waiting() -> int:
    async with transaction() as session:
        statement = select(func.count()).where(Job.status == "pending")
        return int(await session.scalar(statement) or 0)


async def retry_with_api(client: httpx.AsyncClient, job: int) -> httpx.Response:
    return await client.post(f"/api/v3/jobs/{job}/retry")


async def retry_on_page(client: httpx.AsyncClient, job: int) -> httpx.Response:
    return await client.post(f"/jobs/{job}/retry")


async def retry_all_on_page(client: httpx.AsyncClient, _job: int) -> httpx.Response:
    return await client.post("/jobs", data={"status": "failed", "action": "retry"})


async def release(client: httpx.AsyncClient, _job: int) -> httpx.Response:
    return await client.post("/api/v3/domains/s0.example.com/release")


@pytest.mark.parametrize("queue", [retry_with_api, retry_on_page, retry_all_on_page, release])
async def test_retries_and_releases_are_refused_if_the_queue_is_full(
    app: FastAPI, queue: RetryOrRelease
):
    async with client_with(app, await make_key(Scope.READ, Scope.SCAN)) as client:
        failed, *_ = await jobs_of_ann("failed", *["pending"] * MAX_QUEUED)
        refused = await queue(client, failed)
        assert refused.status_code == 429
        assert "retry-after" in refused.headers
        assert await waiting() == MAX_QUEUED


async def test_as_many_jobs_are_retried_as_there_is_room_for(app: FastAPI):
    async with client_with(app, await make_key(Scope.READ, Scope.SCAN)) as client:
        await jobs_of_ann("pending", *["failed"] * 4)
        assert (await retry_all_on_page(client, 0)).status_code == 429
    assert await waiting() == MAX_QUEUED


async def test_a_job_that_an_admin_retries_counts_for_its_owner(app: FastAPI):
    await make_key(Scope.SCAN)
    failed, *_ = await jobs_of_ann("failed", *["pending"] * MAX_QUEUED)
    async with client_with(app, await make_key(Scope.ADMIN, user="root")) as admin:
        assert (await retry_with_api(admin, failed)).status_code == 429


async def test_a_job_of_the_schedule_that_an_admin_retries_counts_for_the_admin(app: FastAPI):
    failed = await jobs_of(SYSTEM_USER_ID, "failed", *["pending"] * MAX_QUEUED)
    async with client_with(app, await make_key(Scope.ADMIN)) as admin:
        assert (await retry_with_api(admin, failed[0])).status_code == 202
        await jobs_of(await id_of_ann(), *["pending"] * MAX_QUEUED, name="own")
        more = await jobs_of(SYSTEM_USER_ID, "failed", name="more")
        assert (await retry_with_api(admin, more[0])).status_code == 429


async def submit_batch(client: httpx.AsyncClient, name: str) -> httpx.Response:
    return await client.post(
        BATCH, json={"domains": [f"{name}.example.com", f"{name}.example.org"]}
    )


async def import_list(client: httpx.AsyncClient, name: str) -> httpx.Response:
    sites = [{"domain": f"{name}.example.com"}, {"domain": f"{name}.example.org"}]
    return await client.post(IMPORT, json={"sites": sites})


async def submit_form(client: httpx.AsyncClient, name: str) -> httpx.Response:
    return await client.post("/scan", data={"sites": f"{name}.example.com\n{name}.example.org"})


@pytest.mark.parametrize("submit", [submit_batch, import_list, submit_form])
async def test_lists_of_sites_at_the_same_time_do_not_exceed_the_queue(
    app: FastAPI, submit: SubmitList
):
    async with client_with(app, await make_key(Scope.READ, Scope.SCAN)) as client:
        answers = await asyncio.gather(*(submit(client, f"s{number}") for number in range(8)))
    assert {answer.status_code for answer in answers} <= {200, 202, 303, 429}
    assert 2 <= await waiting() <= MAX_QUEUED


async def submit_site(client: httpx.AsyncClient, name: str) -> httpx.Response:
    return await client.post(SCAN, json={"base_url": f"{name}.example.com"})


async def test_single_scans_at_the_same_time_fill_the_queue_and_no_more(app: FastAPI):
    async with client_with(app, await make_key(Scope.READ, Scope.SCAN)) as client:
        answers = await asyncio.gather(*(submit_site(client, f"s{n}") for n in range(12)))
    accepted = Counter(answer.status_code for answer in answers)
    assert accepted == {202: MAX_QUEUED, 429: 12 - MAX_QUEUED}
    assert await waiting() == MAX_QUEUED


async def test_single_scans_and_lists_at_the_same_time_do_not_exceed_the_queue(app: FastAPI):
    async with client_with(app, await make_key(Scope.READ, Scope.SCAN)) as client:
        answers = await asyncio.gather(
            *(submit(client, f"s{n}") for n in range(6) for submit in (submit_site, submit_batch))
        )
    assert {answer.status_code for answer in answers} == {202, 429}
    assert 2 <= await waiting() <= MAX_QUEUED


async def test_a_single_scan_is_checked_with_one_statement(app: FastAPI, database: Database):
    async with client_with(app, await make_key(Scope.READ, Scope.SCAN)) as client:
        with counted_statements(database) as statements:
            assert (await submit_site(client, "s0")).status_code == 202
    assert len([text for text in statements if "count(*)" in text]) == 1
    assert not [text for text in statements if "advisory" in text]


@asynccontextmanager
async def locked_queue_of_ann() -> AsyncIterator[None]:
    """Lock the queue of the user, as a request to another process does."""
    user = await id_of_ann()
    async with transaction() as session:
        await lock_pending(session, user)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("submit", [submit_batch, import_list, submit_form])
async def test_parallel_lists_of_a_user_leave_connections_to_others(
    database: Database, submit: SubmitList
):
    app = application(database)
    connections = CountedConnections(database)
    ann, bob = await make_key(Scope.READ, Scope.SCAN), await make_key(Scope.READ, user="bob")
    async with client_with(app, ann) as client, client_with(app, bob) as other:
        async with locked_queue_of_ann():
            lists = [asyncio.ensure_future(submit(client, f"s{n}")) for n in range(12)]
            await asyncio.sleep(1)
            assert connections.checked_out == 2
            async with asyncio.timeout(1):
                assert (await other.get("/api/v3/jobs")).status_code == 200
        answers = await asyncio.gather(*lists)
    assert {answer.status_code for answer in answers} <= {200, 202, 303}


async def test_few_requests_of_a_user_wait_for_their_turn(database: Database):
    app = application(database, max_connections=20)
    async with client_with(app, await make_key(Scope.SCAN)) as client:
        async with locked_queue_of_ann():
            lists = [asyncio.create_task(submit_batch(client, f"s{n}")) for n in range(5)]
            await wait_until(lambda: sum(task.done() for task in lists) == 2)
            refused = [task.result() for task in lists if task.done()]
        answers = await asyncio.gather(*lists)
    assert [answer.json()["code"] for answer in refused] == ["too_many_requests"] * 2
    assert [answer.headers["retry-after"] for answer in refused] == ["5", "5"]
    assert Counter(answer.status_code for answer in answers) == {202: 3, 429: 2}


async def test_a_turn_is_not_waited_for_forever(app: FastAPI, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(queue_room, "TURN_SECONDS", 0.1)
    async with client_with(app, await make_key(Scope.SCAN)) as client:
        async with locked_queue_of_ann():
            lists = [asyncio.create_task(submit_batch(client, f"s{n}")) for n in range(2)]
            await wait_until(lambda: any(task.done() for task in lists))
        answers = await asyncio.gather(*lists)
    assert [answer.status_code for answer in answers].count(429) == 1
