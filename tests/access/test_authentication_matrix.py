"""Every route with every kind of credentials: none, wrong keys, and keys with each scope."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI
from starlette.types import Message

from siteatlas.access.authentication import is_public_path
from siteatlas.access.keys import Scope
from siteatlas.access.limits import PUBLIC, READ
from siteatlas.api.routes import MarkedRoute, marked_routes, require_marks
from siteatlas.main import create_app
from siteatlas.settings import Settings
from tests.fixtures.access import client_with, expire, make_key, revoke

ROUTES = [
    (method, route)
    for route in marked_routes(create_app(Settings(), run_scheduler=False))
    for method in sorted(route.methods or {"GET"})
]
PARAMETERS = {"{key_id}": "abcdefgh", "{domain}": "example.com"}
SOME_UUID = "0d4f5cbb-6c5c-4b8e-9c0f-5d6a4f3a2b11"
REFUSALS = {401, 403}
TIMEOUT_SECONDS = 20.0


def path_of(route: MarkedRoute) -> str:
    """A path that leads to the route."""
    path = route.path
    for name, value in PARAMETERS.items():
        path = path.replace(name, value)
    path = re.sub(r"\{[^}]+\}", SOME_UUID, path)
    return f"{path}/docs.js" if path == "/static" else path


def scope_of(route: MarkedRoute) -> Scope | None:
    (mark,) = route.marks
    return mark.scope


def named(route: tuple[str, MarkedRoute]) -> str:
    return f"{route[0]} {route[1].path}"


@pytest_asyncio.fixture
async def closed_app(app: FastAPI) -> FastAPI:
    await make_key(Scope.ADMIN, user="root")
    return app


async def outcome(app: FastAPI, route: tuple[str, MarkedRoute], key: str | None) -> httpx.Response:
    """The head of the response; a stream is left as soon as it begins."""
    started: asyncio.Future[httpx.Response] = asyncio.get_running_loop().create_future()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            started.set_result(httpx.Response(message["status"], headers=message["headers"]))

    body: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        # After the body the client stays, and sends nothing.
        if not body:
            await asyncio.Event().wait()
        return body.pop()

    credentials = [] if key is None else [(b"authorization", f"Bearer {key}".encode())]
    path = path_of(route[1])
    scope = {
        "type": "http",
        "method": route[0],
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"localhost:8000"), *credentials],
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 1),
    }
    serving = asyncio.create_task(app(scope, receive, send))
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await started
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.parametrize("route", ROUTES, ids=named)
async def test_a_route_serves_whom_its_mark_names(
    closed_app: FastAPI, route: tuple[str, MarkedRoute]
):
    needed = scope_of(route[1])
    for scope in Scope:
        key = await make_key(scope, user=scope.value)
        status = (await outcome(closed_app, route, key)).status_code
        allowed = needed is None or scope in {needed, Scope.ADMIN}
        assert (status not in REFUSALS) is allowed, (scope, status)
        assert status < 500


@pytest.mark.parametrize("route", ROUTES, ids=named)
async def test_a_route_refuses_senders_without_a_valid_key(
    closed_app: FastAPI, route: tuple[str, MarkedRoute]
):
    expired, revoked = await make_key(Scope.ADMIN), await make_key(Scope.ADMIN)
    await expire(expired)
    await revoke(revoked)
    expected = 401 if scope_of(route[1]) else None
    for key in (None, "wrong", expired, revoked):
        response = await outcome(closed_app, route, key)
        assert response.status_code == (expected or response.status_code)
        assert (response.status_code == 401) is (expected == 401)
        if expected:
            assert response.headers["content-type"] == "application/problem+json"
            assert response.headers["www-authenticate"].startswith("Bearer ")


def test_reading_needs_read_and_changing_does_not():
    reads = {named(route) for route in ROUTES if scope_of(route[1]) is Scope.READ}
    assert {name for name in reads if not name.startswith(("GET", "HEAD"))} == set()


def test_every_route_has_exactly_one_mark():
    assert len(ROUTES) > 25
    assert [named(route) for route in ROUTES if len(route[1].marks) != 1] == []


def test_what_is_public_is_what_is_served_without_asking_the_database():
    public = {path_of(route) for _, route in ROUTES if scope_of(route) is None}
    assert public == {path_of(route) for _, route in ROUTES if is_public_path(path_of(route))}
    assert {path.split("/")[1] for path in public} <= {"health", "static", "login", "logout"}


@pytest.mark.parametrize("marks", [[], [READ, PUBLIC]], ids=["none", "two"])
def test_an_application_with_an_unmarked_route_does_not_start(marks: list[Any]):
    app = create_app(Settings(), run_scheduler=False)

    async def unmarked() -> None:
        """Nobody said who may come here."""

    app.add_api_route("/unmarked", unmarked, dependencies=marks)
    with pytest.raises(AssertionError, match="/unmarked"):
        require_marks(app)


@pytest.mark.parametrize("path", ["/nothing", "/api/v3/nothing", "/static", "/healthy", "/health/"])
async def test_what_does_not_exist_is_not_revealed_to_strangers(closed_app: FastAPI, path: str):
    async with client_with(closed_app) as client:
        assert (await client.get(path)).status_code == 401


JSON_BODIES: dict[str, dict[str, Any]] = {
    "PATCH /api/v3/domains/{domain}": {"paused": True},
    "POST /api/v3/domains": {"domain": "example.com", "scan_interval_hours": 1},
    "PUT /api/v3/domains/{domain}/headers": {
        "origin": "https://example.com",
        "headers": {"Authorization": "Basic YTpi"},
    },
    "POST /api/v3/domains/{domain}/findings/{code}/accept": {"reason": "why not"},
    "POST /api/v3/domains/import": {"sites": [{"domain": "example.com", "tags": ["mine"]}]},
    "POST /api/v3/sitemap/scan": {"base_url": "example.com", "watch": True},
    "POST /api/v3/sitemap/batch/create": {"domains": ["example.com"]},
}
FORMS: dict[str, dict[str, str]] = {
    "POST /domains": {"action": "remove", "domain": "example.com", "confirmed": "1"},
    "POST /jobs": {"action": "cancel", "status": "pending"},
    "POST /scan": {"sites": "example.com", "watch": "1"},
    "POST /domains/{domain}/settings": {"interval": "1"},
    "POST /domains/{domain}/findings": {"code": "url-invalid", "reason": "why not"},
    "POST /domains/{domain}/headers": {"origin": "https://example.com", "headers": "X-A: b"},
}
# Whoever may scan may also join the scan of a site.
OPEN_TO_ALL = {
    "POST /api/v3/sitemap/scan",
    "POST /api/v3/sitemap/batch/create",
    "POST /api/v3/domains/import",
    "POST /domains/{domain}/scan",
    "POST /domains",
    "POST /jobs",
    "POST /scan",
}
SCANS = [route for route in ROUTES if scope_of(route[1]) is Scope.SCAN]


@pytest.mark.parametrize("route", SCANS, ids=named)
async def test_a_route_changes_nothing_of_another_user(
    closed_app: FastAPI, route: tuple[str, MarkedRoute]
):
    ann = await make_key(Scope.READ, Scope.SCAN, user="ann")
    bob = await make_key(Scope.READ, Scope.SCAN, user="bob")
    async with client_with(closed_app, ann) as owner, client_with(closed_app, bob) as other:
        await owner.post("/api/v3/domains", json={"domain": "example.com"})
        before = await work_of(owner)
        path = re.sub(r"\{job_id\}", str(before["jobs"][0]["id"]), route[1].path)
        paths = [
            path.replace("{domain}", "example.com")
            .replace("{code}", "url-invalid")
            .replace("{action}", action)
            for action in ("cancel", "retry")
        ]
        for tried in dict.fromkeys(paths):
            answer = await other.request(
                route[0], tried, json=JSON_BODIES.get(named(route)), data=FORMS.get(named(route))
            )
            assert (answer.status_code == 403) is (named(route) not in OPEN_TO_ALL), answer.text
            assert answer.status_code < 500
        assert await work_of(owner) == before


async def work_of(owner: httpx.AsyncClient) -> dict[str, Any]:
    """The site and its jobs, but for who else wants them."""
    site = (await owner.get("/api/v3/domains/example.com")).json()
    jobs = (await owner.get("/api/v3/jobs")).json()["items"]
    told_to_all = {"shared", "requests", "requested_by", "updated_at"}
    kept = [{name: job[name] for name in job if name not in told_to_all} for job in jobs]
    return {"site": {**site, "updated_at": None}, "jobs": kept}
