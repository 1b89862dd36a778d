"""Whose work a job or a site is, and who may change it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI
from sqlalchemy import select, text, update

from siteatlas.access.keys import Scope
from siteatlas.net.address import parse_site
from siteatlas.queue.fence import Priority
from siteatlas.queue.operator_actions import cancel as cancel_job
from siteatlas.queue.submission import submit_site
from siteatlas.storage.models import SYSTEM_USER_ID, Job, JobStatus
from siteatlas.storage.session import get_session
from tests.fixtures.access import client_with, make_key
from tests.fixtures.waiting import wait_until

SCAN = "/api/v3/sitemap/scan"
SITE = "/api/v3/domains/example.com"
REFUSED = (403, "not_owner")
# Unlike pg_stat_activity, pg_locks is read anew by each statement of a transaction.
WAITING_FOR_A_LOCK = text("SELECT count(*) FROM pg_locks WHERE NOT granted")


@dataclass(frozen=True, slots=True)
class Users:
    """Two users who may scan, and an administrator."""

    ann: httpx.AsyncClient
    bob: httpx.AsyncClient
    admin: httpx.AsyncClient


@pytest_asyncio.fixture
async def users(app: FastAPI) -> AsyncIterator[Users]:
    async with (
        client_with(app, await make_key(Scope.READ, Scope.SCAN, user="ann")) as ann,
        client_with(app, await make_key(Scope.READ, Scope.SCAN, user="bob")) as bob,
        client_with(app, await make_key(Scope.ADMIN, user="root")) as admin,
    ):
        yield Users(ann, bob, admin)


async def scan(client: httpx.AsyncClient, site: str = "example.com", **more: Any) -> str:
    response = await client.post(SCAN, json={"base_url": site, **more})
    assert response.status_code == 202, response.text
    return str(response.json()["job_id"])


async def attempt(
    client: httpx.AsyncClient, method: str, path: str, **more: Any
) -> tuple[int, str]:
    response = await client.request(method, path, **more)
    body = response.json() if response.content else {}
    return response.status_code, body.get("code", "")


async def cancel(client: httpx.AsyncClient, job: str) -> tuple[int, str]:
    return await attempt(client, "POST", f"/api/v3/jobs/{job}/cancel")


async def test_users_have_ids_of_their_own(users: Users):
    job, other = await scan(users.ann), await scan(users.bob, "example.org")
    owners = [
        (await users.ann.get(f"/api/v3/jobs/{one}")).json()["created_by"] for one in (job, other)
    ]
    assert len(set(owners)) == 2


async def test_a_job_is_cancelled_by_the_user_whose_it_is(users: Users):
    job = await scan(users.ann)
    assert await cancel(users.bob, job) == REFUSED
    assert await cancel(users.ann, job) == (200, "")


async def withdraw(client: httpx.AsyncClient, job: str) -> tuple[str, int, bool]:
    answer = (await client.post(f"/api/v3/jobs/{job}/cancel")).json()
    return answer["status"], answer["requests"], answer["shared"]


@pytest.mark.parametrize("order", [("ann", "bob"), ("bob", "ann")])
async def test_a_job_that_two_users_want_ends_when_the_second_cancels_it(
    users: Users, order: tuple[str, str]
):
    job = await scan(users.ann)
    assert await scan(users.bob) == await scan(users.bob) == job
    shown = (await users.ann.get(f"/api/v3/jobs/{job}")).json()
    assert (shown["shared"], shown["requests"]) == (True, 2)
    first, second = (getattr(users, name) for name in order)
    assert await withdraw(first, job) == ("pending", 1, False)
    assert await cancel(first, job) == REFUSED
    assert await withdraw(second, job) == ("cancelled", 1, False)


async def test_a_job_that_its_owner_gave_up_counts_for_the_user_who_still_wants_it(users: Users):
    job = await scan(users.ann)
    own = await scan(users.bob, "example.org")
    await scan(users.bob)
    await withdraw(users.ann, job)
    owners = [
        (await users.ann.get(f"/api/v3/jobs/{one}")).json()["created_by"] for one in (job, own)
    ]
    assert owners[0] == owners[1]


async def test_an_admin_cancels_a_job_for_all_users(users: Users):
    job = await scan(users.ann)
    await scan(users.bob)
    assert (await withdraw(users.admin, job))[0] == "cancelled"


async def test_a_job_of_the_schedule_goes_on_when_a_user_who_joined_it_cancels(users: Users):
    async with get_session() as session, session.begin():
        submitted = await submit_site(
            session,
            parse_site("example.com"),
            created_by=SYSTEM_USER_ID,
            priority=Priority.SCHEDULED,
        )
    job = str(submitted.job_id)
    assert await cancel(users.ann, job) == REFUSED
    assert await scan(users.ann) == job
    assert await withdraw(users.ann, job) == ("pending", 0, False)


async def test_who_submits_a_site_whose_job_is_being_cancelled_gets_a_new_job(users: Users):
    job = await scan(users.ann)
    async with get_session() as session:
        await session.begin()
        number = (await session.execute(select(Job.id))).scalar_one()
        await cancel_job(session, number)
        joining = asyncio.create_task(scan(users.bob))

        async def is_waiting() -> bool:
            return bool((await session.execute(WAITING_FOR_A_LOCK)).scalar())

        await wait_until(is_waiting)
        await session.commit()
    assert await joining != job


async def test_joining_one_s_own_job_shares_it_with_nobody(users: Users):
    job = await scan(users.ann)
    assert await scan(users.ann) == job
    assert await cancel(users.ann, job) == (200, "")


async def test_a_batch_that_joins_a_job_keeps_it(users: Users):
    job = await scan(users.ann)
    batch = await users.bob.post(
        "/api/v3/sitemap/batch/create", json={"domains": ["example.com", "example.org"]}
    )
    assert job in [item["job_id"] for item in batch.json()["items"]]
    assert await withdraw(users.ann, job) == ("pending", 1, False)


async def test_the_schedule_shares_no_job(users: Users):
    job = await scan(users.ann)
    async with get_session() as session, session.begin():
        joined = await submit_site(
            session,
            parse_site("example.com"),
            created_by=SYSTEM_USER_ID,
            priority=Priority.SCHEDULED,
        )
    assert (str(joined.job_id), joined.deduplicated) == (job, True)
    assert await cancel(users.ann, job) == (200, "")


async def test_a_job_is_retried_by_the_user_whose_it_is(users: Users):
    job = await scan(users.ann)
    async with get_session() as session, session.begin():
        await session.execute(update(Job).values(status=JobStatus.FAILED))
    retry = f"/api/v3/jobs/{job}/retry"
    assert await attempt(users.bob, "POST", retry) == REFUSED
    assert (await attempt(users.ann, "POST", retry))[0] == 202


async def test_a_retried_job_is_wanted_by_its_owner_alone(users: Users):
    job = await scan(users.ann)
    assert await scan(users.bob) == job
    async with get_session() as session, session.begin():
        await session.execute(update(Job).values(status=JobStatus.FAILED))
    retry = f"/api/v3/jobs/{job}/retry"
    assert await attempt(users.bob, "POST", retry) == REFUSED
    assert (await attempt(users.ann, "POST", retry))[0] == 202
    assert (await users.ann.get(f"/api/v3/jobs/{job}")).json()["requests"] == 1
    await cancel(users.ann, job)
    assert (await users.ann.get(f"/api/v3/jobs/{job}")).json()["status"] == "cancelled"


@pytest.mark.parametrize("change", [{"paused": True}, {"scan_interval_hours": 1}])
async def test_a_site_is_changed_by_the_user_whose_it_is(users: Users, change: dict[str, Any]):
    await users.ann.post("/api/v3/domains", json={"domain": "example.com"})
    assert await attempt(users.bob, "PATCH", SITE, json=change) == REFUSED
    assert (await attempt(users.ann, "PATCH", SITE, json=change))[0] == 200
    assert (await attempt(users.admin, "PATCH", SITE, json=change))[0] == 200


async def test_a_site_is_removed_by_the_user_whose_it_is(users: Users):
    await scan(users.ann)
    assert await attempt(users.bob, "DELETE", SITE) == REFUSED
    assert (await attempt(users.ann, "DELETE", SITE))[0] == 204


@pytest.mark.parametrize("ended", [False, True])
async def test_a_site_with_a_scan_of_others_is_removed_by_an_admin_only(users: Users, ended: bool):
    await scan(users.ann)
    if ended:
        async with get_session() as session, session.begin():
            await session.execute(update(Job).values(status=JobStatus.COMPLETED))
    await scan(users.bob)
    if ended:
        async with get_session() as session, session.begin():
            await session.execute(update(Job).values(status=JobStatus.COMPLETED))
    assert await attempt(users.ann, "DELETE", SITE) == REFUSED
    assert (await attempt(users.ann, "GET", SITE))[0] == 200
    assert (await attempt(users.admin, "DELETE", SITE))[0] == 204


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, 200),
        ({"scan_interval_hours": 12}, 200),
        ({"scan_interval_hours": 1}, 403),
        ({"max_pages": 5}, 403),
    ],
)
async def test_how_a_site_is_watched_is_not_changed_by_watching_it_too(
    users: Users, body: dict[str, Any], expected: int
):
    mine = {"domain": "example.com", "scan_interval_hours": 12}
    assert (await users.ann.post("/api/v3/domains", json=mine)).status_code == 201
    response = await users.bob.post("/api/v3/domains", json={"domain": "example.com", **body})
    assert response.status_code == expected
    shown = (await users.ann.get(SITE)).json()
    assert (shown["scan_interval_hours"], shown["max_pages"]) == (12, None)


async def test_a_paused_site_is_not_resumed_by_another_user(users: Users):
    await users.ann.post("/api/v3/domains", json={"domain": "example.com"})
    await users.ann.patch(SITE, json={"paused": True})
    body = {"base_url": "example.com", "watch": True}
    assert await attempt(users.bob, "POST", SCAN, json=body) == REFUSED
    assert await attempt(users.bob, "POST", "/api/v3/domains", json={"domain": "example.com"}) == (
        REFUSED
    )
    assert (await users.ann.get(SITE)).json()["paused"] is True


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v3/domains", {"domain": "example.com"}),
        ("/api/v3/domains/import", {"sites": [{"domain": "example.com"}]}),
        (SCAN, {"base_url": "example.com", "watch": True}),
    ],
)
async def test_a_site_keeps_its_owner_when_another_user_begins_to_watch_it(
    users: Users, path: str, body: dict[str, Any]
):
    await scan(users.ann)
    assert (await users.bob.post(path, json=body)).status_code in {200, 202}
    assert (await users.ann.get(SITE)).json()["watched"] is True
    assert await attempt(users.bob, "PATCH", SITE, json={"paused": True}) == REFUSED
    assert await attempt(users.bob, "DELETE", SITE) == REFUSED
    assert (await attempt(users.ann, "PATCH", SITE, json={"paused": True}))[0] == 200


async def test_a_scan_by_another_user_does_not_change_when_and_where_a_site_is_scanned(
    users: Users,
):
    body = {"domain": "https://example.com", "scan_interval_hours": 12}
    await users.ann.post("/api/v3/domains", json=body)
    await users.admin.post("/api/v3/jobs/1/cancel")
    before = (await users.ann.get(SITE)).json()
    for watch in (False, True):
        job = await scan(users.bob, "http://example.com", watch=watch)
        assert await cancel(users.bob, job) == (200, "")
    await users.bob.post(
        "/api/v3/domains/import", json={"sites": [{"domain": "http://example.com"}]}
    )
    after = (await users.ann.get(SITE)).json()
    assert after["next_scan_at"] == before["next_scan_at"]
    assert after["base_url"] == before["base_url"] == "https://example.com/"


async def test_the_owner_of_a_site_changes_where_its_scans_start(users: Users):
    await users.ann.post("/api/v3/domains", json={"domain": "https://example.com"})
    await scan(users.ann, "http://example.com")
    assert (await users.ann.get(SITE)).json()["base_url"] == "http://example.com/"


async def test_a_site_that_nobody_watches_is_scanned_where_it_was_submitted_last(users: Users):
    await scan(users.ann, "https://example.com")
    await scan(users.bob, "http://example.com")
    assert (await users.ann.get(SITE)).json()["base_url"] == "http://example.com/"
