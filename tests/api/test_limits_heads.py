"""Heads beyond the limits are refused before routing, and every refusal leaves a bounded trace."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Scope
from structlog.testing import capture_logs

from siteatlas.aio import fair_loop
from siteatlas.api.limits import RequestBodyLimits

JOBS = "/api/v3/jobs"
SCAN = "/api/v3/sitemap/scan"


def code_of(response: httpx.Response) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/problem+json"
    return response.status_code, response.json()["code"]


@pytest.mark.parametrize("path", [JOBS, "/health", "/nothing", "/static/docs.js"])
async def test_a_long_target_is_414(cut_off_client: httpx.AsyncClient, path: str):
    response = await cut_off_client.get(f"{path}?x={'x' * 8192}")
    assert code_of(response) == (414, "target_too_long")
    response = await cut_off_client.get(f"{path}/{'x' * 8192}")
    assert code_of(response) == (414, "target_too_long")


async def test_more_than_64_parameters_are_400(cut_off_client: httpx.AsyncClient):
    query = "&".join(f"p{number}" for number in range(65))
    assert code_of(await cut_off_client.get(f"{JOBS}?{query}")) == (400, "too_many_parameters")


async def test_64_unknown_parameters_are_named(cut_off_client: httpx.AsyncClient):
    query = "&".join(f"p{number}=" for number in range(64))
    response = await cut_off_client.get(f"{JOBS}?{query}")
    assert code_of(response) == (422, "input_invalid")
    assert len(response.json()["errors"]) == 64


async def test_more_than_100_headers_are_431(cut_off_client: httpx.AsyncClient):
    headers = [(f"X-{number}", "") for number in range(101)]
    response = await cut_off_client.get("/health", headers=headers)
    assert code_of(response) == (431, "headers_too_large")


async def test_two_lengths_are_refused_before_all_else(cut_off_client: httpx.AsyncClient):
    headers = {"Content-Length": "5", "Transfer-Encoding": "chunked", "Host": "evil.example"}
    response = await cut_off_client.post(SCAN, content=b"0\r\n\r\n", headers=headers)
    assert code_of(response) == (400, "length_ambiguous")
    assert response.headers["connection"] == "close"


async def test_a_refused_request_leaves_a_line(cut_off_client: httpx.AsyncClient):
    with capture_logs() as lines:
        await cut_off_client.get("/health", headers={"Sec-Fetch-Site": "cross-site"})
    (line,) = [line for line in lines if line["event"] == "request_refused"]
    assert (line["path"], line["status"], line["error"]) == ("/health", 403, "origin_refused")


async def test_the_line_of_a_refused_request_has_its_status_as_a_number(
    cut_off_client: httpx.AsyncClient,
):
    with capture_logs() as lines:
        await cut_off_client.get("/nothing")
        await cut_off_client.delete("/health")
    refused = [line for line in lines if line["event"] == "request_refused"]
    assert [repr(line["status"]) for line in refused] == ["404", "405"]


async def test_a_flood_of_refused_requests_leaves_few_lines(cut_off_client: httpx.AsyncClient):
    with capture_logs() as lines:
        for _ in range(300):
            await cut_off_client.get("/nothing")
    assert 20 <= len([line for line in lines if line["event"] == "request_refused"]) < 60


async def test_a_request_goes_first_only_once_its_body_is_complete():
    inside: list[int] = []
    rest = asyncio.Event()
    parts = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.request", "body": b"}", "more_body": False},
    ]

    async def route(_scope: object, receive: object, _send: object) -> None:
        inside.append(fair_loop()._interactive_count)

    async def receive() -> dict[str, object]:
        if len(parts) == 1:
            await rest.wait()
        return parts.pop(0)

    async def send(_message: object) -> None: ...

    headers = [(b"content-type", b"application/json")]
    scope: Scope = {"type": "http", "method": "POST", "path": SCAN, "headers": headers}
    sending = asyncio.create_task(RequestBodyLimits(route, larger={})(scope, receive, send))
    await asyncio.sleep(0.05)
    assert (len(parts), fair_loop()._interactive_count) == (1, 0)
    rest.set()
    await sending
    assert inside == [1]
    assert fair_loop()._interactive_count == 0


async def test_a_request_without_its_body_does_not_go_first(cut_off_app: FastAPI):
    """As the one before, through all that stands in front of the routes."""

    async def receive() -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(_message: object) -> None: ...

    headers = [(b"host", b"localhost:8000")]
    scope: Scope = {"type": "http", "method": "POST", "path": SCAN, "headers": headers}
    asked = asyncio.create_task(cut_off_app(scope, receive, send))
    await asyncio.sleep(0.05)
    people = fair_loop()._interactive_count
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    assert people == 0
