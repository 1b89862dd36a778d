"""The audit trail: who did what, from where, with what result."""

from __future__ import annotations

from typing import Any

import httpx
from fastapi import FastAPI

from siteatlas.access.keys import Scope
from tests.fixtures.access import client_with, key_id, make_key

SCAN = "/api/v3/sitemap/scan"
AUDIT = "/api/v3/audit"
FAILED_LOGINS_PER_MINUTE = 10


async def events(admin: httpx.AsyncClient, **query: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await admin.get(AUDIT, params=query)).json()["items"]
    return items[::-1]


async def test_changes_are_recorded_with_their_sender_and_result(app: FastAPI):
    admin_key, key = await make_key(Scope.ADMIN, user="root"), await make_key(Scope.SCAN)
    async with (
        client_with(app, admin_key) as admin,
        client_with(app, key, client=("192.0.2.7", 1)) as ann,
    ):
        done = await ann.post(SCAN, json={"base_url": "example.com"})
        await ann.post(SCAN, json={"base_url": "10.0.0.1"})
        await ann.post("/api/v3/keys", json={"name": "x", "scopes": ["admin"]})
        await ann.get(SCAN)
        first, second, third = await events(admin)
    assert (first["action"], first["status"], first["error_code"]) == ("scan_domain", 202, None)
    assert (first["user_name"], first["key_id"], first["address"]) == (
        "ann",
        key_id(key),
        "192.0.2.7",
    )
    assert first["target"] == done.headers["location"]
    assert first["request_id"] == done.headers["x-request-id"]
    assert (second["status"], second["error_code"]) == (422, "egress_denied")
    assert (third["action"], third["status"], third["error_code"]) == (
        "post_key",
        403,
        "scope_missing",
    )


async def test_logins_and_refused_keys_are_recorded_without_secrets(app: FastAPI):
    admin_key = await make_key(Scope.ADMIN, user="root")
    wrong = admin_key[:-1] + ("A" if admin_key[-1] != "A" else "B")
    async with client_with(app) as browser:
        await browser.post("/login", data={"key": wrong})
        await browser.post("/login", data={"key": admin_key})
        await browser.post("/logout")
        await browser.get("/api/v3/jobs", headers={"Authorization": f"Bearer {wrong}"})
    async with client_with(app, admin_key) as admin:
        recorded = await events(admin)
        text = (await admin.get(AUDIT)).text
    assert [(event["action"], event["status"], event["user_name"]) for event in recorded] == [
        ("key_refused", 401, None),
        ("log_in", 303, "root"),
        ("log_out", 303, "root"),
        ("key_refused", 401, None),
    ]
    assert admin_key.split("_")[2] not in text
    assert wrong.split("_")[2] not in text


async def test_the_trail_is_for_administrators_and_by_user(app: FastAPI):
    admin_key, key = (
        await make_key(Scope.ADMIN, user="root"),
        await make_key(Scope.SCAN, Scope.READ),
    )
    async with client_with(app, key) as ann, client_with(app, admin_key) as admin:
        await ann.post(SCAN, json={"base_url": "example.com"})
        await admin.post(SCAN, json={"base_url": "example.org"})
        assert (await ann.get(AUDIT)).status_code == 403
        assert [event["user_name"] for event in await events(admin, user="ann")] == ["ann"]


async def test_requests_without_a_key_leave_no_trail(app: FastAPI):
    admin_key = await make_key(Scope.ADMIN, user="root")
    async with client_with(app) as stranger, client_with(app, admin_key) as admin:
        answers = [
            await stranger.post("/health"),
            await stranger.delete("/static/app.css"),
            await stranger.post("/static/nothing"),
            await stranger.post("/logout"),
            await stranger.post(SCAN, json={"base_url": "example.com"}),
        ]
        assert await events(admin) == []
    assert [answer.status_code for answer in answers] == [405, 405, 405, 303, 401]


async def test_an_address_with_too_many_wrong_keys_adds_nothing_to_the_trail(app: FastAPI):
    admin_key = await make_key(Scope.ADMIN, user="root")
    async with client_with(app) as stranger, client_with(app, admin_key) as admin:
        for _ in range(30):
            await stranger.post("/login", data={"key": "wrong"})
        recorded = await events(admin)
    assert {event["action"] for event in recorded} == {"key_refused"}
    assert len(recorded) == FAILED_LOGINS_PER_MINUTE


async def test_local_mode_keeps_no_trail(client: httpx.AsyncClient):
    await client.post(SCAN, json={"base_url": "example.com"})
    await client.post("/health")
    assert await events(client) == []
