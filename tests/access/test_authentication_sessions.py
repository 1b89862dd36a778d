"""Logging in with a key: the cookie, what it opens, and how it ends."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import timedelta

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import func, select, update

from siteatlas.access import authentication as browser_sessions
from siteatlas.access.authentication import drop_other_cookies, safe_path, session_token
from siteatlas.access.keys import Scope
from siteatlas.storage.models import BrowserSession
from siteatlas.storage.session import Database, get_session
from tests.fixtures.access import application, client_with, make_key, revoke

JOBS = "/api/v3/jobs"
COOKIE = "siteatlas_session"
VISIT_COOKIE = "siteatlas_visit"
# Unquoting it takes quadratic time in some versions of Python.
HOSTILE_COOKIE = b'a="' + b"\\" * 16_000 + b'"'
NAVIGATION = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Sec-Fetch-Site": "none"}


async def log_in(client: httpx.AsyncClient, key: str, **fields: str) -> httpx.Response:
    return await client.post("/login", data={"key": key, **fields})


async def test_a_key_opens_a_session_that_a_browser_sends_along(app: FastAPI):
    key = await make_key(Scope.READ)
    async with client_with(app) as browser:
        assert (await browser.get(JOBS)).status_code == 401
        response = await log_in(browser, key, next="/jobs")
        assert (response.status_code, response.headers["location"]) == (303, "/jobs")
        assert (await browser.get(JOBS)).status_code == 200
        refused = await browser.post("/api/v3/sitemap/scan", json={"base_url": "example.com"})
        assert refused.json()["code"] == "scope_missing"


async def test_the_cookie_is_kept_from_scripts_and_other_sites(app: FastAPI):
    key = await make_key(Scope.READ)
    async with client_with(app) as browser:
        cookie = (await log_in(browser, key)).headers["set-cookie"]
    name, _, rest = cookie.partition("=")
    attributes = {part.strip().lower() for part in rest.split(";")[1:]}
    assert name == COOKIE
    assert {"httponly", "samesite=lax", "path=/"} <= attributes
    assert "secure" not in attributes
    assert key not in cookie


async def test_behind_tls_the_cookie_is_bound_to_the_host(database: Database):
    app = application(database, public_url="https://atlas.example.com")
    key = await make_key(Scope.READ)
    async with client_with(app, base_url="https://atlas.example.com") as browser:
        cookie = (await log_in(browser, key)).headers["set-cookie"]
        assert cookie.startswith(f"__Host-{COOKIE}=")
        assert "secure" in cookie.lower()
        assert (await browser.get(JOBS)).status_code == 200
        stripped = {"Cookie": cookie.split(";")[0].removeprefix("__Host-")}
        browser.cookies.clear()
        assert (await browser.get(JOBS, headers=stripped)).status_code == 401


@pytest.mark.parametrize(
    "others",
    [
        ["theme=dark"],
        ['broken="\\', "näme=1", "a b=c"],
        [f"{COOKIE}=", f"{COOKIE}=short", f"x{COOKIE}={'a' * 43}"],
    ],
    ids=["usual", "malformed", "similar"],
)
async def test_cookies_of_other_programs_on_the_host_do_not_matter(app: FastAPI, others: list[str]):
    key = await make_key(Scope.READ)
    async with client_with(app) as browser:
        await log_in(browser, key)
        cookies = "; ".join([*others, f"{COOKIE}={browser.cookies[COOKIE]}", *others])
        browser.cookies.clear()
        answer = await browser.get(JOBS, headers=[(b"Cookie", cookies.encode("latin-1"))])
    assert answer.status_code == 200


def test_all_cookies_but_our_own_are_dropped():
    token = "aB0_-" * 8 + "xyz"
    own, visit = f"{COOKIE}={token}", f"{VISIT_COOKIE}=0-1795124145"
    cookies = HOSTILE_COOKIE + f"; {own}; b=1; {visit}; {VISIT_COOKIE}=x-1".encode()
    scope = {"headers": [(b"host", b"x"), (b"cookie", cookies), (b"cookie", b"c=2")]}
    drop_other_cookies(scope)
    assert scope["headers"] == [(b"host", b"x"), (b"cookie", f"{own}; {visit}".encode())]
    assert session_token(scope, is_tls=False) == token
    assert session_token(scope, is_tls=True) is None


@pytest.mark.parametrize("path", ["/health", "/login", JOBS, "/nothing"])
async def test_the_framework_never_parses_cookies_of_strangers(
    cut_off_client: httpx.AsyncClient, path: str, monkeypatch: pytest.MonkeyPatch
):
    parsed: list[str] = []

    def parse(text: str) -> dict[str, str]:
        parsed.append(text)
        return {}

    monkeypatch.setattr("starlette.requests.cookie_parser", parse)
    await cut_off_client.get(path, headers=[(b"Cookie", HOSTILE_COOKIE)])
    assert parsed == []


async def test_the_token_is_stored_as_a_hash(app: FastAPI):
    key = await make_key(Scope.READ)
    async with client_with(app) as browser:
        await log_in(browser, key)
        token = browser.cookies[COOKIE]
    async with get_session() as session, session.begin():
        stored = (await session.execute(select(BrowserSession.token_hash))).scalar_one()
    assert token.encode() not in stored
    assert len(stored) == 32


async def test_a_wrong_key_leads_back_to_the_form(app: FastAPI):
    await make_key(Scope.READ)
    async with client_with(app) as browser:
        response = await log_in(browser, "wrong", next="/jobs")
        assert response.headers["location"] == "/login?error=key_invalid&next=%2Fjobs"
        assert "set-cookie" not in response.headers
        page = await browser.get(response.headers["location"])
    assert (page.status_code, "unknown or incomplete" in page.text) == (200, True)


async def test_people_who_open_a_page_are_led_to_the_login(app: FastAPI):
    await make_key(Scope.READ)
    async with client_with(app) as browser:
        page = await browser.get("/jobs", headers=NAVIGATION)
        data = await browser.get(JOBS, headers=NAVIGATION)
        program = await browser.get("/jobs")
    assert (page.status_code, page.headers["location"]) == (303, "/login?next=/jobs")
    assert (data.status_code, program.status_code) == (401, 401)


async def test_logging_out_ends_the_session_on_the_server(app: FastAPI):
    key = await make_key(Scope.READ)
    async with client_with(app) as browser:
        await log_in(browser, key)
        token = browser.cookies[COOKIE]
        assert (await browser.post("/logout")).headers["location"] == "/login"
        assert COOKIE not in browser.cookies
        stale = await browser.get(JOBS, headers={"Cookie": f"{COOKIE}={token}"})
    assert stale.status_code == 401


async def test_all_sessions_of_a_user_are_ended_at_once(app: FastAPI):
    key, other = await make_key(Scope.READ), await make_key(Scope.READ, user="bob")
    async with client_with(app) as one, client_with(app) as two, client_with(app) as bob:
        await log_in(one, key)
        await log_in(two, key)
        await log_in(bob, other)
        await one.post("/logout", data={"all": "1", "confirmed": "1"})
        statuses = [(await browser.get(JOBS)).status_code for browser in (one, two, bob)]
    assert statuses == [401, 401, 200]


@pytest.mark.parametrize(
    "values",
    [
        {"last_used_at": func.now() - timedelta(hours=12, seconds=1)},
        {"expires_at": func.now() - timedelta(seconds=1)},
    ],
    ids=["idle", "total"],
)
async def test_a_session_ends_by_itself(app: FastAPI, values: dict[str, object]):
    key = await make_key(Scope.READ)
    async with client_with(app) as browser:
        await log_in(browser, key)
        async with get_session() as session, session.begin():
            await session.execute(update(BrowserSession).values(values))
        assert (await browser.get(JOBS)).status_code == 401


async def test_a_session_ends_with_its_key(app: FastAPI):
    key = await make_key(Scope.READ)
    async with client_with(app) as browser:
        await log_in(browser, key)
        await revoke(key)
        assert (await browser.get(JOBS)).status_code == 401


async def test_a_key_that_opens_many_sessions_ends_those_unused_for_longest(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(browser_sessions, "SESSIONS_PER_KEY", 2)
    key, other = await make_key(Scope.READ), await make_key(Scope.READ)
    async with AsyncExitStack() as stack:
        browsers = [await stack.enter_async_context(client_with(app)) for _ in range(4)]
        for browser, used in zip(browsers, (other, key, key, key), strict=True):
            await log_in(browser, used)
        statuses = [(await browser.get(JOBS)).status_code for browser in browsers]
    assert statuses == [200, 401, 200, 200]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://localhost:9000"},
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_pages_of_other_origins_cannot_use_a_session(
    app: FastAPI, method: str, headers: dict[str, str]
):
    key = await make_key(Scope.ADMIN)
    async with client_with(app) as browser:
        await log_in(browser, key)
        await browser.get(JOBS)
        response = await browser.request(method, "/api/v3/sitemap/scan", headers=headers)
    assert (response.status_code, response.json()["code"]) == (403, "origin_refused")


@pytest.mark.parametrize(
    "text",
    ["https://evil.example", "//evil.example", "/\\evil.example", "evil", "", "/login", "/a\r\nb"],
)
def test_the_login_leads_to_pages_of_this_service_only(text: str):
    assert safe_path(text) == "/"


def test_the_login_leads_on_to_the_page_that_was_asked_for():
    assert safe_path("/domains/example.com?tab=urls") == "/domains/example.com?tab=urls"


@pytest.mark.parametrize("path", [JOBS, "/scan", "/logout"])
async def test_two_session_cookies_are_refused(app: FastAPI, path: str):
    """A page on another port of the host can set the second one."""
    async with client_with(app) as browser:
        tokens = []
        for user in ("ann", "bob"):
            await log_in(browser, await make_key(Scope.READ, user=user))
            tokens.append(browser.cookies[COOKIE])
        browser.cookies.clear()
        cookies = {"Cookie": "; ".join(f"{COOKIE}={token}" for token in tokens)}
        method = "POST" if path == "/logout" else "GET"
        answer = await browser.request(method, path, headers=cookies)
        assert (answer.status_code, "session cookies" in answer.text) == (400, True)
        for token in tokens:
            one = await browser.get(JOBS, headers={"Cookie": f"{COOKIE}={token}"})
            assert one.status_code == 200
