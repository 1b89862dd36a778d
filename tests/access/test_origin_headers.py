"""Every answer carries the headers that keep browsers in bounds."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI
from structlog.testing import capture_logs

from siteatlas.access.origin import CONTENT_SECURITY_POLICY
from siteatlas.errors import SiteatlasError
from siteatlas.storage.session import Database
from tests.fixtures.access import application, client_with
from tests.fixtures.application import BASE_URL

EXPECTED = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
ANSWERS = [
    ("GET", "/health", 200),
    ("GET", "/", 503),
    ("GET", "/docs", 200),
    ("GET", "/openapi.json", 200),
    ("GET", "/static/docs.js", 200),
    ("GET", "/static/nothing.js", 404),
    ("GET", "/static/%2e%2e/static_files.py", 404),
    ("GET", "/api/v3/jobs", 503),
    ("GET", "/api/v3/jobs/x", 422),
    ("GET", "/nothing", 404),
    ("POST", "/health", 405),
    ("POST", "/api/v3/sitemap/scan", 422),
]


@pytest.mark.parametrize(("method", "path", "status"), ANSWERS)
async def test_the_headers_are_on_every_answer(
    cut_off_client: httpx.AsyncClient, method: str, path: str, status: int
):
    response = await cut_off_client.request(method, path)
    assert response.status_code == status
    assert {name: response.headers.get(name) for name in EXPECTED} == EXPECTED
    assert "geolocation=()" in response.headers["permissions-policy"]
    assert "cache-control" in response.headers
    assert "access-control-allow-origin" not in response.headers
    assert "server" not in response.headers


async def test_the_headers_are_on_refused_requests(cut_off_client: httpx.AsyncClient):
    response = await cut_off_client.get("/health", headers={"Host": "evil.example"})
    assert response.status_code == 403
    assert {name: response.headers.get(name) for name in EXPECTED} == EXPECTED


async def test_data_is_never_kept_by_a_cache(cut_off_client: httpx.AsyncClient):
    for path in ("/api/v3/jobs", "/docs"):
        assert (await cut_off_client.get(path)).headers["cache-control"] == "no-store"
    assert (await cut_off_client.get("/static/docs.js")).headers["cache-control"] == "no-cache"


async def test_each_request_has_an_id_of_its_own(cut_off_client: httpx.AsyncClient):
    ids = {(await cut_off_client.get("/health")).headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3


class Broken(Exception):
    """Something that nobody expected."""


@pytest.mark.criterion("errors-logged")
@pytest.mark.parametrize("error", [Broken("secret detail"), SiteatlasError("secret detail")])
async def test_what_breaks_inside_is_answered_without_our_inside(
    cut_off_app: FastAPI, error: Exception
):
    async def broken() -> None:
        raise error

    cut_off_app.add_api_route("/broken", broken)
    transport = httpx.ASGITransport(app=cut_off_app)
    async with httpx.AsyncClient(transport=transport, base_url=BASE_URL) as client:
        with capture_logs() as lines:
            response = await client.get("/broken")
    problem = response.json()
    assert (response.status_code, problem["code"]) == (500, "internal_error")
    assert "secret" not in response.text
    assert {name: response.headers.get(name) for name in EXPECTED} == EXPECTED
    assert [line["event"] for line in lines] == ["request_failed"]


@pytest.mark.parametrize(("public_url", "sent"), [("https://a.example", True), ("", False)])
async def test_browsers_are_told_to_stay_with_tls(database: Database, public_url: str, sent: bool):
    async with client_with(application(database, public_url=public_url)) as client:
        answer = await client.get("/health")
    assert ("strict-transport-security" in answer.headers) is sent
