"""A closed installation: the names under which it is reached, and pages of other origins."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI

from siteatlas.access.keys import Scope
from siteatlas.settings import load_settings
from siteatlas.storage.session import Database
from tests.fixtures.access import application, client_with, make_key

JOBS = "/api/v3/jobs"
PUBLIC = "https://atlas.example.com"
APP = "https://app.example.net"


async def answer(app: FastAPI, key: str, host: str, **headers: str) -> httpx.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client_with(app, key) as client:
        return await client.get(JOBS, headers={"Host": host, **names})


async def test_any_host_is_served_with_a_key(app: FastAPI):
    key = await make_key(Scope.READ)
    assert (await answer(app, key, "atlas.example.com")).status_code == 200


@pytest.mark.parametrize(
    ("host", "headers", "status"),
    [
        ("atlas.example.com", {}, 200),
        ("atlas.example.com", {"Origin": PUBLIC}, 200),
        ("127.0.0.1:8000", {}, 200),
        ("127.0.0.1:8000", {"Origin": PUBLIC}, 200),
        ("atlas.example.com", {"Origin": "http://atlas.example.com"}, 403),
        ("atlas.example.com", {"Origin": "https://evil.example"}, 403),
        ("evil.example", {}, 403),
        ("atlas.example.com.evil.example", {}, 403),
    ],
)
async def test_with_a_public_address_only_its_host_is_served(
    database: Database, host: str, headers: dict[str, str], status: int
):
    app = application(database, public_url=PUBLIC)
    assert (await answer(app, await make_key(Scope.READ), host, **headers)).status_code == status


@pytest.mark.parametrize(
    ("public", "expected"), [(PUBLIC, "atlas.example.com"), (None, "be 127.0.0.1:8000,")]
)
async def test_a_refused_host_is_named_with_the_one_that_is_expected(
    database: Database, public: str | None, expected: str
):
    if public is None:
        async with client_with(application(database), None) as client:
            refused = await client.get(JOBS, headers={"Host": "evil.example:81"})
    else:
        app = application(database, public_url=public)
        refused = await answer(app, await make_key(Scope.READ), "evil.example:81")
    told = refused.json()
    assert (refused.status_code, told["code"]) == (403, "host_refused")
    assert "evil.example:81" in told["detail"]
    assert expected in told["detail"]


async def test_cors_is_closed_unless_configured(app: FastAPI):
    key = await make_key(Scope.READ)
    preflight = {"Origin": APP, "Access-Control-Request-Method": "GET"}
    async with client_with(app) as client:
        refused = await client.options(JOBS, headers=preflight)
    read = await answer(app, key, "localhost:8000", Origin=APP)
    assert read.status_code == 403
    for response in (refused, read):
        assert not [name for name in response.headers if name.startswith("access-control")]


async def test_a_configured_origin_uses_the_api_with_a_key_and_never_with_a_session(
    database: Database,
):
    app = application(database, cors_origins=APP)
    key = await make_key(Scope.READ)
    preflight = {
        "Origin": APP,
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "authorization",
    }
    cross = {"Origin": APP, "Sec-Fetch-Site": "cross-site"}
    async with client_with(app) as browser:
        assert (await browser.options(JOBS, headers=preflight)).status_code == 200
        await browser.post("/login", data={"key": key})
        assert (await browser.get(JOBS)).status_code == 200
        assert (await browser.get(JOBS, headers=cross)).status_code == 401
        with_key = await browser.get(JOBS, headers={**cross, "Authorization": f"Bearer {key}"})
        evil = await browser.get(JOBS, headers={"Origin": "https://evil.example"})
    assert (with_key.status_code, with_key.headers["access-control-allow-origin"]) == (200, APP)
    assert "access-control-allow-credentials" not in with_key.headers
    assert evil.status_code == 403


async def test_a_configured_origin_can_read_error_responses(database: Database):
    app = application(database, cors_origins=APP)
    key = {"Authorization": f"Bearer {await make_key(Scope.READ, Scope.SCAN)}"}
    origin = {"Origin": APP, "Sec-Fetch-Site": "cross-site"}
    scan, json = "/api/v3/sitemap/scan", {"Content-Type": "application/json"}
    async with client_with(app) as client:
        responses = [
            await client.get(JOBS, headers=origin),
            await client.get(f"{JOBS}?{'&' * 100}", headers=origin | key),
            await client.post(scan, content=b"x" * 100_000, headers=origin | key | json),
            await client.post(scan, content=b"x", headers=origin | key | {"Content-Type": "a/b"}),
            await client.post(scan, content=b"{", headers=origin | key | json),
        ]
        evil = {"Origin": "https://evil.example"}
        refused = await client.get(JOBS, headers=evil | key)
        preflight = evil | {"Access-Control-Request-Method": "GET"}
        refused_preflight = await client.options(JOBS, headers=preflight)
    assert [response.status_code for response in responses] == [401, 400, 413, 415, 422]
    assert {response.headers.get("access-control-allow-origin") for response in responses} == {APP}
    assert (refused.status_code, refused_preflight.status_code) == (403, 400)
    for response in (refused, refused_preflight):
        assert "access-control-allow-origin" not in response.headers


async def test_a_configured_origin_can_ask_whether_something_changed(database: Database):
    app = application(database, cors_origins=APP)
    key = await make_key(Scope.READ)
    preflight = {
        "Origin": APP,
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "authorization, if-none-match",
    }
    async with client_with(app, key) as client:
        assert (await client.options(JOBS, headers=preflight)).status_code == 200
        response = await client.get("/api/v3/export?format=csv", headers={"Origin": APP})
    own = {name for name in response.headers if name.startswith("siteatlas-")}
    exposed = set(response.headers["access-control-expose-headers"].lower().split(", "))
    assert len(own) == 3
    assert own | {"etag", "x-request-id", "content-disposition"} <= exposed


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PATCH", "DELETE"])
async def test_a_configured_origin_may_use_every_method_of_the_api(database: Database, method: str):
    app = application(database, cors_origins=APP)
    preflight = {"Origin": APP, "Access-Control-Request-Method": method}
    async with client_with(app) as client:
        response = await client.options(JOBS, headers=preflight)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == APP


async def test_an_origin_may_be_configured_in_upper_case(database: Database):
    loaded = load_settings({}, {"SITEATLAS_CORS_ORIGINS": "https://App.Example.NET/"})
    app = application(database, cors_origins=loaded.settings.cors_origins)
    read = await answer(app, await make_key(Scope.READ), "localhost:8000", Origin=APP)
    assert (read.status_code, read.headers.get("access-control-allow-origin")) == (200, APP)


async def test_the_head_of_a_preflight_is_limited_like_others(database: Database):
    app = application(database, cors_origins=APP)
    preflight = {"Origin": APP, "Access-Control-Request-Method": "GET"}
    lengths = {"Content-Length": "5", "Transfer-Encoding": "chunked"}
    async with client_with(app) as client:
        ambiguous = await client.options(JOBS, headers=preflight | lengths)
        too_long = await client.options(f"{JOBS}?{'x' * 8192}", headers=preflight)
    assert (ambiguous.status_code, too_long.status_code) == (400, 414)
    assert ambiguous.json()["code"] == "length_ambiguous"
    assert ambiguous.headers["access-control-allow-origin"] == APP


async def test_responses_name_the_origin_once_as_what_they_vary_by(database: Database):
    app = application(database, cors_origins=APP)
    preflight = {"Origin": APP, "Access-Control-Request-Method": "GET"}
    async with client_with(app, await make_key(Scope.READ)) as client:
        responses = [
            await client.options(JOBS, headers=preflight),
            await client.options(JOBS, headers=preflight | {"Origin": "https://evil.example"}),
            await client.get(JOBS, headers={"Origin": APP}),
            await client.get(JOBS),
        ]
    for response in responses:
        assert response.headers["vary"].split(", ").count("Origin") == 1
