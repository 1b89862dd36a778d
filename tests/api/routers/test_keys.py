"""Access keys over HTTP: made once, listed without their text, refused when they are not valid."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from siteatlas.access.keys import Scope, key_checksum
from tests.fixtures.access import client_with, expire, key_id, make_key, revoke

KEYS = "/api/v3/keys"


async def status_and_code(
    app: FastAPI, key: str | None, path: str = "/api/v3/jobs"
) -> tuple[int, str]:
    async with client_with(app, key) as client:
        response = await client.get(path)
    body = response.json()
    if response.status_code >= 400:
        assert response.headers["content-type"] == "application/problem+json"
    return response.status_code, body.get("code", "")


async def test_without_any_key_the_local_user_is_served(app: FastAPI):
    assert await status_and_code(app, None) == (200, "")


async def test_once_a_key_was_made_every_request_needs_one(app: FastAPI):
    key = await make_key(Scope.READ)
    assert await status_and_code(app, None) == (401, "key_required")
    assert await status_and_code(app, key) == (200, "")


async def test_the_installation_stays_closed_when_the_last_key_is_gone(app: FastAPI):
    expired, revoked = await make_key(Scope.ADMIN), await make_key(Scope.ADMIN)
    await expire(expired)
    await revoke(revoked)
    assert await status_and_code(app, None) == (401, "key_required")
    assert await status_and_code(app, expired) == (401, "key_expired")
    assert await status_and_code(app, revoked) == (401, "key_revoked")


async def test_a_wrong_key_is_refused_in_local_mode_too(app: FastAPI):
    key = await make_key(Scope.READ)
    unknown = await make_key(Scope.READ)
    swapped = f"sa_{key_id(key)}_{unknown.split('_')[2]}"
    assert await status_and_code(app, swapped) == (401, "key_invalid")
    assert await status_and_code(app, "nonsense") == (401, "key_invalid")


async def test_the_secret_of_another_key_opens_nothing(app: FastAPI):
    ann, bob = await make_key(Scope.READ), await make_key(Scope.READ, user="bob")
    body = f"sa_{key_id(ann)}_{bob.split('_')[2][:-6]}"
    assert await status_and_code(app, body + key_checksum(body)) == (401, "key_invalid")


@pytest.mark.parametrize("header", ["Basic {}", "{}", "Token {}", "Bearer", "Bearer {} {}", ""])
async def test_only_a_bearer_token_counts(app: FastAPI, header: str):
    key = await make_key(Scope.READ)
    async with client_with(app) as client:
        response = await client.get(
            "/api/v3/jobs", headers={"Authorization": header.format(key, key)}
        )
    assert (response.status_code, response.json()["code"]) == (401, "key_invalid")


async def test_a_key_in_the_url_does_not_count(app: FastAPI):
    key = await make_key(Scope.ADMIN)
    async with client_with(app) as client:
        for name in ("key", "api_key", "access_token", "token"):
            response = await client.get("/openapi.json", params={name: key})
            assert (response.status_code, response.json()["code"]) == (401, "key_required")


async def test_refusals_name_the_way_in(app: FastAPI):
    reader = await make_key(Scope.READ)
    async with client_with(app) as client:
        anonymous = await client.get("/api/v3/jobs")
        wrong = await client.get("/api/v3/jobs", headers={"Authorization": "Bearer x"})
    async with client_with(app, reader) as client:
        refused = await client.post("/api/v3/sitemap/scan", json={"base_url": "example.com"})
    assert anonymous.headers["www-authenticate"] == 'Bearer realm="siteatlas"'
    assert 'error="invalid_token"' in wrong.headers["www-authenticate"]
    assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
    assert 'scope="scan"' in refused.headers["www-authenticate"]


async def test_a_refused_request_is_answered_before_its_body_is_read(app: FastAPI):
    await make_key(Scope.ADMIN)
    async with client_with(app) as client:
        response = await client.post("/api/v3/sitemap/scan", content=b"{" * 20_000)
    assert response.status_code == 401


async def test_a_key_is_shown_once(app: FastAPI):
    async with client_with(app) as client:
        response = await client.post(KEYS, json={"name": "first", "scopes": ["admin"]})
    created = response.json()
    assert response.status_code == 201
    assert response.headers["location"] == f"{KEYS}/{created['id']}"
    assert created["id"] == key_id(created["key"])
    assert (created["user"], created["scopes"], created["status"]) == ("first", ["admin"], "active")
    async with client_with(app, created["key"]) as admin:
        shown, listed = await admin.get(f"{KEYS}/{created['id']}"), await admin.get(KEYS)
    del created["key"]
    assert shown.json() | {"last_used_at": None} == created
    assert [item["id"] for item in listed.json()["items"]] == [created["id"]]
    assert "key_hash" not in listed.text
    assert shown.json()["last_used_at"] is not None


async def test_the_first_key_closes_the_installation_at_once(app: FastAPI):
    async with client_with(app) as client:
        assert (await client.get(KEYS)).status_code == 200
        await client.post(KEYS, json={"name": "first", "scopes": ["admin"]})
        assert (await client.get(KEYS)).status_code == 401


async def test_a_revoked_key_is_refused_from_the_next_request_on(app: FastAPI):
    admin_key, other = await make_key(Scope.ADMIN), await make_key(Scope.READ, user="bob")
    async with client_with(app, admin_key) as admin, client_with(app, other) as bob:
        assert (await bob.get("/api/v3/jobs")).status_code == 200
        assert (await admin.delete(f"{KEYS}/{key_id(other)}")).status_code == 204
        assert (await bob.get("/api/v3/jobs")).json()["code"] == "key_revoked"
        assert (await admin.get(f"{KEYS}/{key_id(other)}")).json()["status"] == "revoked"
        assert (await admin.delete(f"{KEYS}/{key_id(other)}")).status_code == 204


async def test_an_unknown_key_cannot_be_revoked(client: httpx.AsyncClient):
    response = await client.delete(f"{KEYS}/nosuchid")
    assert (response.status_code, response.json()["code"]) == (404, "key_not_found")


async def test_a_key_expires(app: FastAPI):
    async with client_with(app) as client:
        body = {"name": "brief", "scopes": ["read"], "expires_in_days": 1e-8}
        created = (await client.post(KEYS, json=body)).json()
    assert await status_and_code(app, created["key"]) == (401, "key_expired")


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x", "scopes": []},
        {"name": "x", "scopes": ["root"]},
        {"name": "", "scopes": ["read"]},
        {"name": "  ", "scopes": ["read"]},
        {"name": "x\ny", "scopes": ["read"]},
        {"name": "x" * 101, "scopes": ["read"]},
        {"name": "x", "scopes": ["read"], "expires_in_days": 0},
        {"name": "system", "scopes": ["read"]},
        {"name": "x", "user": "system", "scopes": ["read"]},
        {"scopes": ["read"]},
    ],
)
async def test_a_key_that_makes_no_sense_is_refused(
    client: httpx.AsyncClient, body: dict[str, Any]
):
    assert (await client.post(KEYS, json=body)).status_code == 422


async def test_two_keys_of_one_name_belong_to_one_user(app: FastAPI):
    first, second = await make_key(Scope.SCAN, Scope.READ), await make_key(Scope.SCAN, Scope.READ)
    users = set()
    for number, key in enumerate((first, second)):
        async with client_with(app, key) as client:
            scan = await client.post(
                "/api/v3/sitemap/scan", json={"base_url": f"site{number}.example.com"}
            )
            status = await client.get(scan.json()["status_url"])
        users.add(status.json()["created_by"])
    assert len(users) == 1
    assert users != {"5905e9fe-6c61-4694-b09a-6602017b000a"}


@pytest.mark.parametrize("page", [False, True])
async def test_the_last_admin_key_does_not_revoke_itself(app: FastAPI, page: bool):
    key, expired = await make_key(Scope.ADMIN), await make_key(Scope.ADMIN)
    await expire(expired)
    own = f"{KEYS}/{key_id(key)}"

    async def revoke_itself(client: httpx.AsyncClient) -> int:
        form = f"/keys/{key_id(key)}/revoke"
        return (
            await (client.post(form, data={"confirmed": "1"}) if page else client.delete(own))
        ).status_code

    async with client_with(app, key) as client:
        assert await revoke_itself(client) == 409
        assert (await client.get(own)).json()["status"] == "active"
        await make_key(Scope.ADMIN, user="bob")
        assert await revoke_itself(client) in {204, 303}
        assert (await client.get(own)).status_code == 401
