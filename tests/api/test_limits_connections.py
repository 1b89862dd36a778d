"""Slow, stuck and broken clients over real connections: they are closed, others are served."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send
from structlog.testing import capture_logs

from siteatlas.access.keys import Installation
from siteatlas.cli.hosting.connections import (
    ACCEPT_FAILED,
    ConnectionLimits,
    listen,
    quiet_accept_faults,
)
from siteatlas.cli.hosting.server import WebServer
from siteatlas.main import create_app
from siteatlas.settings import Settings
from siteatlas.storage.session import bound_database
from tests.fixtures.waiting import wait_until

TIMEOUT_SECONDS = 10.0
QUICK = ConnectionLimits(
    connections=3,
    reserve=1,
    head_seconds=0.3,
    body_seconds=0.3,
    rest_seconds=0.3,
    stall_seconds=0.5,
)
PATIENT = ConnectionLimits(connections=3, reserve=1, head_seconds=60)
LARGE = 30_000_000


class Client:
    """One connection, byte for byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.port = writer.get_extra_info("peername")[1]

    async def send(self, text: str) -> None:
        self._writer.write(text.replace("HOST", f"127.0.0.1:{self.port}").encode())
        await self._writer.drain()

    async def rest(self) -> bytes:
        """All that comes until the server closes."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            try:
                return await self._reader.read()
            except ConnectionError:
                return b""

    async def head(self) -> str:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return (await self._reader.readuntil(b"\r\n\r\n")).decode()

    async def status(self) -> str:
        return (await self.head()).split(" ", 2)[1]

    def close(self) -> None:
        self._writer.transport.abort()


Connect = Callable[[], Any]


class StubbornApp:
    """The application, and routes that take as long or send as much as a test wants."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.finish = asyncio.Event()
        self.connections: set[Any] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/slow":
            await self.finish.wait()
        if scope["type"] == "http" and scope["path"] in {"/slow", "/large"}:
            size = LARGE if scope["path"] == "/large" else 0
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x" * size})
            return
        await self._app(scope, receive, send)


@asynccontextmanager
async def serving(
    app: FastAPI, limits: ConnectionLimits
) -> AsyncIterator[tuple[Connect, StubbornApp]]:
    ready = asyncio.Event()
    clients: list[Client] = []
    stubborn = StubbornApp(app)
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        server = WebServer(stubborn, ready.set, limits)
        stubborn.connections = server.server_state.connections
        running = asyncio.create_task(server.serve(sockets=[listener]))
        await ready.wait()

        async def connect() -> Client:
            client = Client(*await asyncio.open_connection("127.0.0.1", port))
            clients.append(client)
            return client

        try:
            yield connect, stubborn
        finally:
            for client in clients:
                client.close()
            server.should_exit = True
            await running


@pytest.fixture
def any_port_app(cut_off_app: FastAPI) -> FastAPI:
    return create_app(
        Settings(port=0),
        run_scheduler=False,
        database=bound_database(),
        installation=Installation(is_closed=False),
    )


HEALTH = "GET /health HTTP/1.1\r\nHost: HOST\r\n\r\n"


def problem_of(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head.lower()
    assert b"connection: close" in head.lower()
    problem = json.loads(body)
    return problem["status"], problem["code"]


async def test_a_head_that_does_not_end_is_given_up(any_port_app: FastAPI):
    async with serving(any_port_app, QUICK) as (connect, _):
        client = await connect()
        await client.send("GET /health HTTP/1.1\r\nHost: HOST\r\nX: ")
        assert problem_of(await client.rest()) == (408, "headers_too_slow")


async def test_bytes_that_trickle_in_give_no_more_time(any_port_app: FastAPI):
    async with serving(any_port_app, QUICK) as (connect, _):
        client = await connect()

        async def trickle() -> None:
            await client.send("GET /health HTTP/1.1\r\nX: ")
            for _ in range(100):
                await client.send("x")
                await asyncio.sleep(0.02)

        trickling = asyncio.create_task(trickle())
        answer = await client.rest()
        assert not trickling.done()
        trickling.cancel()
        assert b"headers_too_slow" in answer or answer == b""


async def test_a_connection_that_says_nothing_is_closed(any_port_app: FastAPI):
    async with serving(any_port_app, QUICK) as (connect, _):
        client = await connect()
        assert await client.rest() == b""


async def test_a_second_request_has_its_own_time(any_port_app: FastAPI):
    async with serving(any_port_app, QUICK) as (connect, _):
        client = await connect()
        await client.send(HEALTH)
        assert await client.status() == "200"
        await asyncio.sleep(QUICK.head_seconds * 1.5)
        await client.send(HEALTH)
        assert b"200 OK" in await client._reader.readuntil(b"200 OK")
        await client.send("GET /hea")
        assert b"headers_too_slow" in await client.rest()


async def test_a_body_that_continues_after_its_response_is_cut_off(any_port_app: FastAPI):
    async with serving(any_port_app, QUICK) as (connect, _):
        client = await connect()
        await client.send(
            "POST /api/v3/sitemap/scan HTTP/1.1\r\nHost: HOST\r\nContent-Length: 999999999\r\n\r\n{"
        )
        answer = await client.rest()
        assert b"413" in answer
        assert b"payload_too_large" in answer


async def test_a_body_that_does_not_end_is_given_up(any_port_app: FastAPI):
    async with serving(any_port_app, QUICK) as (connect, _):
        client = await connect()
        await client.send(
            "POST /api/v3/sitemap/scan HTTP/1.1\r\nHost: HOST\r\nContent-Length: 9\r\n\r\n{"
        )
        assert await client.rest() == b""


async def test_an_answer_that_nobody_takes_is_given_up(any_port_app: FastAPI):
    async with serving(any_port_app, QUICK) as (connect, stubborn):
        client = await connect()
        client._writer.transport.pause_reading()
        await client.send("GET /large HTTP/1.1\r\nHost: HOST\r\n\r\n")
        await wait_until(lambda: len(stubborn.connections) == 1)
        await wait_until(lambda: not stubborn.connections)
        client._writer.transport.resume_reading()
        assert len(await client.rest()) < LARGE


async def test_an_answer_that_is_taken_slowly_arrives(any_port_app: FastAPI):
    async with serving(any_port_app, QUICK) as (connect, _):
        client = await connect()
        await client.send("GET /large HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n")
        await client.head()
        taken = 0
        while part := await client._reader.read(3_000_000):
            taken += len(part)
            await asyncio.sleep(0.02)
        assert taken >= LARGE


async def test_slow_clients_make_room_for_a_new_one(any_port_app: FastAPI):
    async with serving(any_port_app, PATIENT) as (connect, _):
        slow = [await connect() for _ in range(20)]
        for client in slow[-3:]:
            await client.send("GET /health HTTP/1.1\r\nX: ")
        client = await connect()
        await client.send(HEALTH)
        assert await client.status() == "200"
        assert await slow[0].rest() == b""


async def test_a_service_that_is_full_of_work_answers_for_its_health(any_port_app: FastAPI):
    async with serving(any_port_app, PATIENT) as (connect, stubborn):
        busy = [await connect() for _ in range(3)]
        for client in busy:
            await client.send("GET /slow HTTP/1.1\r\nHost: HOST\r\n\r\n")
        await asyncio.sleep(0.05)
        refused = await connect()
        await refused.send("GET /docs HTTP/1.1\r\nHost: HOST\r\n\r\n")
        answer = await refused.rest()
        assert problem_of(answer) == (503, "too_many_connections")
        assert b"retry-after" in answer.lower()
        alive = await connect()
        await alive.send(HEALTH)
        assert await alive.status() == "200"
        stubborn.finish.set()
        for client in busy:
            assert await client.status() == "200"


async def test_beyond_the_reserve_a_connection_is_refused_with_a_message(any_port_app: FastAPI):
    limits = ConnectionLimits(connections=1, reserve=0)
    async with serving(any_port_app, limits) as (connect, stubborn):
        busy = await connect()
        await busy.send("GET /slow HTTP/1.1\r\nHost: HOST\r\n\r\n")
        await asyncio.sleep(0.05)
        assert problem_of(await (await connect()).rest()) == (503, "too_many_connections")
        stubborn.finish.set()
        assert await busy.status() == "200"


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ("GET /health HTTP/1.1\r\n\r\n", (400, "request_malformed")),
        ("nonsense\r\n\r\n", (400, "request_malformed")),
        ("GET / HTTP/1.1\r\nX: " + "x" * 200_000, (431, "headers_too_large")),
        ("POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: x\r\n\r\n", (400, "request_malformed")),
    ],
)
async def test_what_is_no_request_is_answered_with_a_problem(
    any_port_app: FastAPI, sent: str, expected: tuple[int, str]
):
    async with serving(any_port_app, PATIENT) as (connect, _):
        client = await connect()
        with capture_logs() as lines:
            await client.send(sent)
            assert problem_of(await client.rest()) == expected
    assert expected[1] in [line.get("error") for line in lines]


async def test_after_a_refusal_nothing_more_is_read(any_port_app: FastAPI):
    async with serving(any_port_app, QUICK) as (connect, _):
        client = await connect()
        await client.send("nonsense\r\n\r\n")
        await asyncio.sleep(0.05)
        await client.send(HEALTH)
        assert (await client.rest()).count(b"content-length") == 1


async def test_a_broken_body_closes_the_connection(any_port_app: FastAPI):
    async with serving(any_port_app, PATIENT) as (connect, _):
        client = await connect()
        await client.send(
            "POST /api/v3/sitemap/scan HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        await asyncio.sleep(0.05)
        await client.send("zz\r\n")
        assert problem_of(await client.rest()) == (400, "request_malformed")


async def test_what_follows_a_request_with_two_lengths_is_not_read(any_port_app: FastAPI):
    hidden = "0\r\n\r\nGET /docs HTTP/1.1\r\nHost: HOST\r\n\r\n"
    async with serving(any_port_app, PATIENT) as (connect, _):
        client = await connect()
        await client.send(
            "GET /health HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n"
            f"Content-Length: 64\r\n\r\n{hidden}"
        )
        answer = await client.rest()
    assert answer.count(b"HTTP/1.1 ") == 1
    assert problem_of(answer) == (400, "length_ambiguous")


async def test_a_request_to_speak_another_protocol_is_served_in_this_one(
    any_port_app: FastAPI, caplog: pytest.LogCaptureFixture
):
    async with serving(any_port_app, PATIENT) as (connect, _):
        client = await connect()
        await client.send(
            "GET /health HTTP/1.1\r\nHost: HOST\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        assert await client.status() == "200"
    assert caplog.records == []


async def test_files_that_run_out_are_one_line_a_second(caplog: pytest.LogCaptureFixture):
    loop = asyncio.get_running_loop()
    fault = {"message": ACCEPT_FAILED, "exception": OSError(24, "Too many open files")}
    with quiet_accept_faults(), capture_logs() as lines:
        for _ in range(1000):
            loop.call_exception_handler(fault)
        with caplog.at_level(logging.ERROR, "asyncio"):
            loop.call_exception_handler({"message": "something else"})
    assert [line["event"] for line in lines] == ["accept_failed"]
    assert [record.message for record in caplog.records] == ["something else"]
