"""A body is read within limits of time, speed and size, and its end is not believed blindly."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from siteatlas.errors import (
    HttpProtocolError,
    ScanError,
    Timeout,
    TooLarge,
    TooSlow,
    Truncated,
)
from siteatlas.net.address import parse_url
from siteatlas.net.response import CHUNK_BYTES, FetchLimits, Response, Speed
from tests.fixtures.raw_server import Connection, RawServer
from tests.fixtures.timings import measured
from tests.net.conftest import QUICK, MakeClient, read

HEAD = b"HTTP/1.1 200 OK\r\n"


def sending(*parts: bytes | float, then_reset: bool = False):
    """A handler that sends parts and sleeps between them where a number stands."""

    async def handler(connection: Connection) -> None:
        await connection.request()
        for part in parts:
            if isinstance(part, bytes):
                await connection.send(part)
            else:
                await asyncio.sleep(part)
        if then_reset:
            await asyncio.sleep(0.05)
            connection.reset()

    return handler


async def read_until_error(response: Response) -> tuple[bytes, ScanError]:
    body = b""
    try:
        async for chunk in response.chunks():
            body += chunk
    except ScanError as error:
        return body, error
    raise AssertionError("no error")


async def failed_read(
    make_client: MakeClient, handler, limits: FetchLimits = QUICK, max_bytes: int | None = None
) -> tuple[bytes, ScanError]:
    async with (
        RawServer(handler) as server,
        make_client(server.entry, limits=limits) as client,
        asyncio.timeout(5),
        client.get(parse_url(server.url()), max_bytes=max_bytes) as response,
    ):
        return await read_until_error(response)


async def test_a_body_shorter_than_its_length_is_truncated(make_client: MakeClient):
    handler = sending(HEAD + b"Content-Length: 100\r\n\r\nhello", 0.05)
    body, error = await failed_read(make_client, handler)
    assert isinstance(error, Truncated)
    assert body == b"hello"


async def test_chunks_that_break_off_are_truncated(make_client: MakeClient):
    handler = sending(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", 0.05)
    body, error = await failed_read(make_client, handler)
    assert isinstance(error, Truncated)
    assert body == b"hello"


async def test_a_reset_in_the_middle_of_a_body_is_truncated(make_client: MakeClient):
    handler = sending(HEAD + b"Content-Length: 100\r\n\r\nhello", then_reset=True)
    _, error = await failed_read(make_client, handler)
    assert isinstance(error, Truncated)


async def test_chunks_that_break_the_framing_are_a_protocol_error(make_client: MakeClient):
    head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    handler = sending(head + b"5\r\nhello\r\n", 0.05, b"nonsense\r\n", 0.05)
    _, error = await failed_read(make_client, handler, replace(QUICK, idle=0.2))
    assert isinstance(error, HttpProtocolError)


async def test_a_flood_of_trailers_is_a_protocol_error(make_client: MakeClient):
    head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    handler = sending(head + b"5\r\nhello\r\n", 0.05, b"0\r\n" + b"X: y\r\n" * 100_000, 0.05)
    _, error = await failed_read(make_client, handler)
    assert isinstance(error, HttpProtocolError)


async def test_a_body_without_length_ends_with_the_connection(make_client: MakeClient):
    async with (
        RawServer(sending(HEAD + b"\r\nhello")) as server,
        make_client(server.entry) as client,
        client.get(parse_url(server.url())) as response,
    ):
        assert await read(response) == b"hello"


async def test_exactly_the_allowed_bytes_are_handed_out_before_too_large(make_client: MakeClient):
    handler = sending(HEAD + b"\r\n", *[b"x" * 10_000] * 30)
    body, error = await failed_read(make_client, handler, max_bytes=150_001)
    assert isinstance(error, TooLarge)
    assert len(body) == 150_001


async def test_a_body_of_exactly_the_allowed_size_is_read(make_client: MakeClient):
    handler = sending(HEAD + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000)
    async with (
        RawServer(handler) as server,
        make_client(server.entry) as client,
        client.get(parse_url(server.url()), max_bytes=1000) as response,
    ):
        assert len(await read(response)) == 1000
        assert response.wire_bytes == 1000


async def test_an_endless_body_is_cut_at_the_limit(make_client: MakeClient):
    async def endless(connection: Connection) -> None:
        await connection.request()
        await connection.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        while True:
            await connection.send(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")

    body, error = await failed_read(make_client, endless)
    assert isinstance(error, TooLarge)
    assert len(body) == QUICK.max_bytes


async def test_a_body_that_stops_coming_is_a_timeout(make_client: MakeClient):
    handler = sending(HEAD + b"Content-Length: 100\r\n\r\nhello", 30)
    body, error = await failed_read(make_client, handler, replace(QUICK, idle=0.2))
    assert isinstance(error, Timeout)
    assert body == b"hello"


@pytest.mark.slow
async def test_a_drip_is_too_slow(make_client: MakeClient):
    drops: list[bytes | float] = [b"x", 0.05] * 200
    limits = replace(QUICK, speed_window=0.5)
    started = time.monotonic()
    _, error = await failed_read(make_client, sending(HEAD + b"\r\n", *drops), limits)
    assert isinstance(error, TooSlow)
    measured(time.monotonic() - started, 2)


@pytest.mark.slow
async def test_a_drip_within_the_speed_limit_ends_with_the_time_for_the_document(
    make_client: MakeClient,
):
    drops: list[bytes | float] = [b"x", 0.05] * 200
    limits = replace(QUICK, lowest_speed=1, document=0.6)
    _, error = await failed_read(make_client, sending(HEAD + b"\r\n", *drops), limits)
    assert isinstance(error, Timeout)
    assert not isinstance(error, TooSlow)


@pytest.mark.slow
async def test_the_time_that_the_reader_takes_is_not_the_sites(make_client: MakeClient):
    body = b"x" * 400_000
    handler = sending(HEAD + b"Content-Length: 400000\r\n\r\n" + body)
    limits = replace(QUICK, document=1.0, speed_window=0.5, lowest_speed=100_000)
    async with (
        RawServer(handler) as server,
        make_client(server.entry, limits=limits) as client,
        client.get(parse_url(server.url())) as response,
    ):
        size = 0
        async for chunk in response.chunks():
            size += len(chunk)
            await asyncio.sleep(0.2)
    assert size == len(body)


async def test_chunks_are_small(make_client: MakeClient):
    handler = sending(HEAD + b"Content-Length: 900000\r\n\r\n" + b"x" * 900_000)
    async with (
        RawServer(handler) as server,
        make_client(server.entry) as client,
        client.get(parse_url(server.url())) as response,
    ):
        sizes = [len(chunk) async for chunk in response.chunks()]
    assert max(sizes) <= CHUNK_BYTES
    assert sum(sizes) == 900_000


def test_speed_is_watched_over_any_window():
    speed = Speed(lowest=10, window=30)
    for second in range(1, 61):
        speed.check(second, 1_000 * second)
    for second in range(61, 90):
        speed.check(second, 60_000 + second - 60)
    with pytest.raises(TooSlow):
        speed.check(90, 60_030)


def test_a_steady_stream_at_the_lowest_speed_is_fast_enough():
    speed = Speed(lowest=10, window=30)
    for second in range(1, 301):
        speed.check(second, 10 * second)
    with pytest.raises(TooSlow):
        speed.check(330, 10 * 330 - 1)
