"""The small server for metrics and health, over real connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest

from siteatlas.cli.hosting import workers as probe_server
from siteatlas.cli.hosting.connections import listen
from siteatlas.cli.hosting.workers import Page, serve_pages

PAGES = {
    "/page": lambda: Page("hello\n"),
    "/bad": lambda: Page("{}\n", "application/json", HTTPStatus.SERVICE_UNAVAILABLE),
}


@pytest.fixture
async def port() -> AsyncIterator[int]:
    listener = listen("127.0.0.1", 0)
    number: int = listener.getsockname()[1]
    async with serve_pages(listener, PAGES):
        yield number


async def ask(port: int, request: bytes) -> bytes:
    """All that comes back until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_a_page_is_answered_in_full_and_the_connection_closed(port: int):
    answer = await ask(port, b"GET /page?x=1 HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 6" in head
    assert b"Connection: close" in head
    assert body == b"hello\n"


async def test_the_status_and_the_type_of_a_page_are_shown(port: int):
    answer = await ask(port, b"GET /bad HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json")


async def test_head_gets_no_body(port: int):
    answer = await ask(port, b"HEAD /page HTTP/1.1\r\n\r\n")
    assert b"Content-Length: 6" in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /other HTTP/1.1", 404),
        (b"POST /page HTTP/1.1", 405),
        (b"GET /page", 400),
        (b"\x16\x03\x01 \xff", 400),
    ],
)
async def test_what_is_no_page_is_refused(port: int, request_line: bytes, status: int):
    answer = await ask(port, request_line + b"\r\n\r\n")
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())


async def test_a_head_without_end_is_cut_off(port: int):
    answer = await ask(port, b"GET /page HTTP/1.1\r\nX: " + b"a" * 200_000)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
    assert b"hello" in await ask(port, b"GET /page HTTP/1.1\r\n\r\n")


async def test_a_silent_connection_is_closed(port: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(probe_server, "CONNECTION_SECONDS", 0.1)
    assert await ask(port, b"GET /page HTTP/1.1\r\n") == b""


async def test_connections_beyond_the_limit_are_closed_at_once(port: int):
    silent = [
        await asyncio.open_connection("127.0.0.1", port)
        for _ in range(probe_server.MAX_CONNECTIONS)
    ]
    assert await ask(port, b"GET /page HTTP/1.1\r\n\r\n") == b""
    for _, writer in silent:
        writer.close()
    answer = b""
    for _ in range(1000):
        if answer := await ask(port, b"GET /page HTTP/1.1\r\n\r\n"):
            break
        await asyncio.sleep(0.01)
    assert b"hello" in answer
