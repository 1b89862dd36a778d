"""Limits per key, user and address; none in local mode."""

from __future__ import annotations

import asyncio

import pytest
from fastapi import FastAPI
from sqlalchemy import select

from siteatlas.access.keys import Scope
from siteatlas.settings import Settings
from siteatlas.storage.models import AuditEvent
from siteatlas.storage.session import Database
from tests.fixtures.access import application, client_with, make_key
from tests.fixtures.database import transaction

JOBS = "/api/v3/jobs"
FAILED_LOGINS_PER_MINUTE = Settings().failed_logins_per_minute
SCAN = "/api/v3/sitemap/scan"
BATCH = "/api/v3/sitemap/batch/create"


async def test_submits_are_limited_per_key_over_all_processes(database: Database):
    first = application(database, submits_per_minute=3)
    second = application(database, submits_per_minute=3)
    key = await make_key(Scope.SCAN)
    answers = []
    for number in range(5):
        async with client_with((first, second)[number % 2], key) as client:
            answers.append(await client.post(SCAN, json={"base_url": f"s{number}.example.com"}))
    assert [answer.status_code for answer in answers] == [202, 202, 202, 429, 429]
    assert answers[3].json()["code"] == "too_many_requests"
    assert 1 <= int(answers[3].headers["retry-after"]) <= 20
    async with client_with(first, await make_key(Scope.SCAN, user="bob")) as other:
        assert (await other.post(SCAN, json={"base_url": "bob.example.com"})).status_code == 202


async def test_submits_at_the_same_time_do_not_slip_through(database: Database):
    app = application(database, submits_per_minute=5)
    key = await make_key(Scope.SCAN)
    async with client_with(app, key) as client:
        answers = await asyncio.gather(
            *(client.post(SCAN, json={"base_url": f"s{n}.example.com"}) for n in range(12))
        )
    assert sorted(answer.status_code for answer in answers) == [202] * 5 + [429] * 7


async def test_reads_are_limited_per_key(database: Database):
    app = application(database, reads_per_minute=3)
    key, other = await make_key(Scope.READ), await make_key(Scope.READ)
    async with client_with(app, key) as client:
        answers = [await client.get(JOBS) for _ in range(4)]
    async with client_with(app, other) as client:
        assert (await client.get(JOBS)).status_code == 200
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert int(answers[3].headers["retry-after"]) >= 1


async def test_local_mode_has_no_limits(database: Database):
    app = application(database, submits_per_minute=1, reads_per_minute=1, max_queued_scans=1)
    async with client_with(app) as client:
        for number in range(3):
            submitted = await client.post(SCAN, json={"base_url": f"s{number}.example.com"})
            assert submitted.status_code == 202
            assert (await client.get(JOBS)).status_code == 200


async def test_queued_scans_are_limited_per_user(database: Database):
    app = application(database, max_queued_scans=3)
    key, second = await make_key(Scope.SCAN), await make_key(Scope.SCAN)
    other = await make_key(Scope.SCAN, user="bob")
    async with client_with(app, key) as client:
        batch = {"domains": ["a.example.com", "b.example.com"]}
        assert (await client.post(BATCH, json=batch)).status_code == 202
        too_many = {"domains": ["c.example.com", "d.example.com"]}
        refused = await client.post(BATCH, json=too_many)
        assert (await client.post(SCAN, json={"base_url": "c.example.com"})).status_code == 202
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_queued_scans")
    assert "retry-after" in refused.headers
    async with client_with(app, second) as client:
        assert (await client.post(SCAN, json={"base_url": "d.example.com"})).status_code == 429
    async with client_with(app, other) as client:
        assert (await client.post(SCAN, json={"base_url": "d.example.com"})).status_code == 202


@pytest.mark.parametrize("path", [JOBS, "/login"])
async def test_wrong_keys_are_limited_by_address(app: FastAPI, path: str):
    key = await make_key(Scope.READ)
    codes = []
    async with client_with(app) as client:
        for number in range(FAILED_LOGINS_PER_MINUTE + 3):
            wrong = f"wrong{number}"
            if path == "/login":
                response = await client.post(path, data={"key": wrong})
                codes.append("too_many" in response.headers["location"])
            else:
                response = await client.get(path, headers={"Authorization": f"Bearer {wrong}"})
                codes.append(response.status_code == 429 and "retry-after" in response.headers)
    assert codes == [False] * FAILED_LOGINS_PER_MINUTE + [True] * 3
    async with client_with(app, key) as client:
        assert (await client.get(JOBS)).status_code == 200
    elsewhere = client_with(app, "wrong", client=("192.0.2.9", 1))
    async with elsewhere:
        assert (await elsewhere.get(JOBS)).status_code == 401


async def wrong_key_status(app: FastAPI, address: str) -> int:
    async with client_with(app, "wrong", client=(address, 1)) as client:
        return (await client.get(JOBS)).status_code


async def test_wrong_keys_from_ipv6_are_limited_by_network(database: Database):
    app = application(database, failed_logins_per_minute=2)
    await make_key(Scope.READ)
    addresses = ["2001:db8::1", "2001:db8::2:0:0:3", "2001:DB8:0:0:ffff::4", "2001:db8:0:1::5"]
    assert [await wrong_key_status(app, one) for one in addresses] == [401, 401, 429, 401]
    async with transaction() as session:
        recorded = await session.scalars(select(AuditEvent.address).order_by(AuditEvent.id))
    assert recorded.all() == ["2001:db8::1", "2001:db8::2:0:0:3", "2001:db8:0:1::5"]


async def test_wrong_keys_from_mapped_addresses_are_limited_by_ipv4_address(database: Database):
    app = application(database, failed_logins_per_minute=2)
    await make_key(Scope.READ)
    addresses = ["::ffff:192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1", "::ffff:192.0.2.2"]
    assert [await wrong_key_status(app, one) for one in addresses] == [401, 401, 429, 401]


async def test_forwarded_addresses_count_only_behind_a_trusted_proxy(database: Database):
    await make_key(Scope.READ)
    trusting = application(database, trusted_proxies="198.51.100.0/24")
    forwarded = {"X-Forwarded-For": "203.0.113.5, 198.51.100.8"}

    async def attempts(peer: str) -> list[int]:
        statuses = []
        async with client_with(trusting, "wrong", client=(peer, 1)) as client:
            for number in range(FAILED_LOGINS_PER_MINUTE + 1):
                headers = {**forwarded, "X-Forwarded-For": f"203.0.113.{number}"}
                statuses.append((await client.get(JOBS, headers=headers)).status_code)
        return statuses

    assert 429 not in await attempts("198.51.100.7")
    assert (await attempts("192.0.2.66"))[-1] == 429


async def test_logins_count_as_submits_of_their_key(database: Database):
    app = application(database, submits_per_minute=3)
    key, other = await make_key(Scope.READ), await make_key(Scope.READ)
    async with client_with(app) as browser:
        answers = [await browser.post("/login", data={"key": key}) for _ in range(4)]
        other_answer = await browser.post("/login", data={"key": other})
    places = [answer.headers["location"] for answer in answers]
    assert places == ["/", "/", "/", "/login?error=too_many_requests&next=%2F"]
    assert "set-cookie" not in answers[3].headers
    assert other_answer.headers["location"] == "/"
