"""Only requests that name this machine and come from our own pages are served."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI

from siteatlas.access.keys import Installation
from siteatlas.main import create_app
from siteatlas.settings import Settings

SCAN = "/api/v3/sitemap/scan"


def speaking_to(app: FastAPI, base_url: str = "http://localhost:8000") -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=base_url)


async def asked(app: FastAPI, method: str = "GET", **headers: str) -> tuple[int, str | None]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    async with speaking_to(app) as client:
        response = await client.request(method, "/health", headers=names)
    return response.status_code, response.json().get("code") if response.content else None


def served_on(host: str = "127.0.0.1", port: int = 8000) -> FastAPI:
    return create_app(
        Settings(host=host, port=port),
        run_scheduler=False,
        installation=Installation(is_closed=False),
    )


@pytest.mark.parametrize(
    "host",
    [
        "localhost:8000",
        "LOCALHOST:8000",
        "127.0.0.1:8000",
        "[::1]:8000",
        "localhost",
        "localhost:8001",
        "127.0.0.1:80",
        "127.255.0.2:8000",
        "[::1]:9",
    ],
)
async def test_the_names_of_this_machine_are_served(host: str):
    assert await asked(served_on(), Host=host) == (200, None)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "0.0.0.0:8000",
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example:8000",
        "localhost:8000.evil.example",
        "evil.example@localhost:8000",
        "localhost:8000, evil.example",
        "localhost.:8000",
        "[::2]:8000",
        "::1:8000",
        "127.0.0.256",
        "127.1:8000",
        "127.0.0.1.evil.example:8000",
        "localhost:800000",
    ],
)
async def test_any_other_host_is_refused(host: str):
    assert await asked(served_on(), Host=host) == (403, "host_refused")


async def test_two_hosts_are_refused():
    headers = [("Host", "localhost:8000"), ("Host", "localhost:8000")]
    async with speaking_to(served_on()) as client:
        response = await client.get("/health", headers=headers)
    assert (response.status_code, response.json()["code"]) == (403, "host_refused")


@pytest.mark.parametrize("header", ["X-Forwarded-For", "X-Forwarded-Proto", "Forwarded"])
async def test_what_a_proxy_passes_on_is_refused_whatever_host_it_names(header: str):
    headers = {"Host": "localhost:8000", header: "192.0.2.7"}
    async with speaking_to(served_on()) as client:
        response = await client.get("/health", headers=headers)
    assert (response.status_code, response.json()["code"]) == (403, "host_refused")


@pytest.mark.parametrize("accepted_on", ["192.0.2.7", "[2001:db8::7]", "[::ffff:192.0.2.7]"])
async def test_connections_from_other_machines_are_refused_whatever_host_they_name(
    accepted_on: str,
):
    async with speaking_to(served_on(), f"http://{accepted_on}:8000") as client:
        response = await client.get("/health", headers={"Host": "localhost:8000"})
    assert (response.status_code, response.json()["code"]) == (403, "host_refused")


@pytest.mark.parametrize("accepted_on", ["127.0.0.2", "[::1]", "[::ffff:127.0.0.1]"])
async def test_connections_over_loopback_are_served(accepted_on: str):
    async with speaking_to(served_on(), f"http://{accepted_on}:8000") as client:
        response = await client.get("/health", headers={"Host": "localhost:8000"})
    assert response.status_code == 200


async def test_no_port_is_needed_on_the_default_port():
    assert await asked(served_on(port=80), Host="localhost") == (200, None)
    assert await asked(served_on(port=80), Host="localhost:80") == (200, None)


async def test_the_loopback_address_that_we_bound_is_served():
    assert await asked(served_on("127.0.0.9"), Host="127.0.0.9:8000") == (200, None)


async def test_a_free_port_is_the_one_that_the_server_got():
    async with speaking_to(served_on(port=0), "http://127.0.0.1:43210") as client:
        assert (await client.get("/health")).status_code == 200
        headers = {"Host": "127.0.0.1:43210", "Origin": "http://127.0.0.1:8000"}
        foreign = await client.get("/health", headers=headers)
    assert foreign.json()["code"] == "origin_refused"


async def test_the_pages_of_a_server_with_another_port_are_its_own():
    own = await asked(served_on(), Host="localhost:9000", Origin="http://localhost:9000")
    other = await asked(served_on(), Host="localhost:9000", Origin="http://localhost:3000")
    assert (own, other) == ((200, None), (403, "origin_refused"))


@pytest.mark.parametrize(
    "origin", ["http://localhost:8000", "http://127.0.0.1:8000", "http://[::1]:8000"]
)
async def test_our_own_pages_are_served(origin: str):
    assert await asked(served_on(), Origin=origin) == (200, None)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example",
        "http://localhost",
        "http://localhost:3000",
        "https://localhost:8000",
        "http://localhost:8000.evil.example",
        "localhost:8000",
        "http://localhost:8000/",
    ],
)
async def test_pages_of_other_origins_are_refused(method: str, origin: str):
    assert await asked(served_on(), method, Origin=origin) == (403, "origin_refused")


@pytest.mark.parametrize(
    ("method", "site", "expected"),
    [
        ("GET", "cross-site", 403),
        ("GET", "same-site", 403),
        ("GET", "nonsense", 403),
        ("HEAD", "cross-site", 403),
        ("GET", "same-origin", 200),
        ("GET", "none", 200),
        ("POST", "same-origin", 405),
        ("POST", "none", 405),
        ("POST", "same-site", 403),
        ("POST", "cross-site", 403),
        ("PATCH", "cross-site", 403),
        ("DELETE", "cross-site", 403),
        ("POST", "nonsense", 403),
    ],
)
async def test_requests_of_browsers_are_taken_from_our_own_pages_only(
    method: str, site: str, expected: int
):
    status, _code = await asked(served_on(), method, Sec_Fetch_Site=site)
    assert status == expected


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize(
    ("path", "mode", "dest", "has_live_worker"),
    [
        ("/docs", "navigate", "document", True),
        ("/scan", "navigate", "document", True),
        ("/docs", "navigate", "iframe", False),
        ("/scan", "no-cors", "image", False),
        ("/events", "navigate", "document", False),
        ("/docs", "no-cors", "document", False),
        ("/docs", "no-cors", "image", False),
        ("/docs", "", "", False),
        ("/health", "navigate", "document", False),
        ("/api/v3/jobs", "navigate", "document", False),
        ("/static/docs.js", "no-cors", "script", False),
        ("/openapi.json", "cors", "empty", False),
    ],
)
async def test_links_of_other_sites_lead_to_our_pages_and_nowhere_else(
    site: str, path: str, mode: str, dest: str, has_live_worker: bool
):
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
    async with speaking_to(served_on()) as client:
        response = await client.get(path, headers={n: v for n, v in headers.items() if v})
    assert (response.status_code < 400) is has_live_worker
    if not has_live_worker:
        assert (response.status_code, response.json()["code"]) == (403, "origin_refused")


async def test_a_refused_request_changes_nothing(client: httpx.AsyncClient):
    headers = {"Sec-Fetch-Site": "cross-site"}
    await client.post(SCAN, json={"base_url": "example.com"}, headers=headers)
    assert (await client.get("/api/v3/jobs")).json()["items"] == []
