"""A site that sends little but wrapping is broken off; ordinary wrapping is read."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from siteatlas.errors import HttpProtocolError
from siteatlas.net import gate as framing
from siteatlas.net.address import parse_url
from siteatlas.net.gate import (
    MAX_BYTES_BEFORE_HEAD,
    MAX_INTERIM_ANSWERS,
    SMALL_READ,
    BoundedHandler,
)
from tests.fixtures.raw_server import Connection, RawServer
from tests.fixtures.timings import measured
from tests.net.conftest import MakeClient, read

HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
END = b"0\r\n\r\n"


class Site:
    """Sends `first`, then `flood` again and again; counts what the client took."""

    def __init__(self, first: bytes, flood: bytes = b"") -> None:
        self.sent = 0
        self._first = first
        self._flood = flood

    async def __call__(self, connection: Connection) -> None:
        while await connection.request() is not None:
            await connection.send(self._first)
            while self._flood:
                await connection.send(self._flood)
                self.sent += len(self._flood)


async def fetch(make_client: MakeClient, site: Site) -> bytes:
    async with (
        RawServer(site) as server,
        make_client(server.entry) as client,
        client.get(parse_url(server.url())) as response,
    ):
        return await read(response)


def chunks(*sizes: int) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (size, b"x" * size) for size in sizes)


@pytest.mark.parametrize(
    ("first", "flood"),
    [
        pytest.param(b"", HINTS * 1000, id="interim answers"),
        pytest.param(b"", b"\r\n" * 10_000, id="blank lines"),
        pytest.param(CHUNKED, chunks(1) * 1000, id="chunks of one byte"),
        pytest.param(CHUNKED, chunks(5) * 1000, id="chunks of five bytes"),
        pytest.param(CHUNKED + b"1;", b"a" * 10_000, id="an endless chunk extension"),
    ],
)
async def test_a_flood_of_wrapping_is_broken_off_early(
    make_client: MakeClient, first: bytes, flood: bytes
):
    site, since = Site(first, flood), time.monotonic()
    with pytest.raises(HttpProtocolError):
        await fetch(make_client, site)
    measured(time.monotonic() - since, 1.5)


@pytest.mark.slow
async def test_a_late_reader_gets_the_same_reason(make_client: MakeClient):
    async with (
        RawServer(Site(CHUNKED, chunks(1) * 1000)) as server,
        make_client(server.entry) as client,
        client.get(parse_url(server.url())) as response,
    ):
        await asyncio.sleep(0.3)
        with pytest.raises(HttpProtocolError, match="chunks"):
            await read(response)


async def test_a_few_interim_answers_are_passed_over(make_client: MakeClient):
    site = Site(HINTS * MAX_INTERIM_ANSWERS + PLAIN)
    assert await fetch(make_client, site) == b"ok"


async def test_one_interim_answer_too_many_is_an_error(make_client: MakeClient):
    with pytest.raises(HttpProtocolError, match="interim"):
        await fetch(make_client, Site(HINTS * (MAX_INTERIM_ANSWERS + 1) + PLAIN))


async def test_each_request_may_have_its_interim_answers(make_client: MakeClient):
    site = Site(HINTS * MAX_INTERIM_ANSWERS + PLAIN)
    async with RawServer(site) as server, make_client(server.entry) as client:
        for _ in range(3):
            async with client.get(parse_url(server.url())) as response:
                assert await read(response) == b"ok"
        assert server.connections == 1


async def test_unasked_answers_do_not_reach_the_next_request(make_client: MakeClient):
    site = Site(PLAIN + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfake")
    async with RawServer(site) as server, make_client(server.entry) as client:
        for _ in range(3):
            async with client.get(parse_url(server.url())) as response:
                assert await read(response) == b"ok"
        assert server.connections == 3


@pytest.mark.parametrize("size", [1, 20, 100, 5_000, 200_000])
async def test_a_document_in_chunks_of_any_size_is_read(make_client: MakeClient, size: int):
    count = min(400_000 // size, 3_000) if size < 10 else 400_000 // size
    body = await fetch(make_client, Site(CHUNKED + chunks(*[size] * count) + END))
    assert len(body) == size * count


async def test_a_stream_of_elements_in_chunks_of_their_own_is_read(make_client: MakeClient):
    sizes = list(itertools.islice(itertools.cycle((5, 60, 6)), 30_000))
    body = await fetch(make_client, Site(CHUNKED + chunks(*sizes) + END))
    assert len(body) == sum(sizes)


async def test_large_headers_are_not_taken_for_framing(make_client: MakeClient):
    cookies = b"".join(b"Set-Cookie: %d=%s\r\n" % (n, b"x" * 3000) for n in range(18))
    head = CHUNKED.replace(b"Transfer", cookies + b"Transfer")
    body = await fetch(make_client, Site(head + chunks(*[10] * 1000) + END))
    assert len(body) == 10_000


async def test_what_came_before_the_head_is_bounded_however_it_looks(make_client: MakeClient):
    site = Site(b"\r\n" * MAX_BYTES_BEFORE_HEAD + PLAIN)
    with pytest.raises(HttpProtocolError, match="headers"):
        await fetch(make_client, site)


async def test_the_parser_gets_little_of_a_flood_at_a_time(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
):
    taken: list[int] = []

    class Counting(BoundedHandler):
        def buffer_updated(self, nbytes: int) -> None:
            taken.append(nbytes)
            super().buffer_updated(nbytes)

    monkeypatch.setattr(framing, "BoundedHandler", Counting)
    with pytest.raises(HttpProtocolError):
        await fetch(make_client, Site(CHUNKED, chunks(1) * 20_000))
    assert 0 < max(taken) <= SMALL_READ


async def test_connections_share_one_receive_buffer():
    loop = asyncio.get_running_loop()
    first, second = BoundedHandler(loop), BoundedHandler(loop)
    assert first.get_buffer(-1).obj is second.get_buffer(-1).obj


async def test_what_several_connections_receive_at_once_is_not_mixed_up(make_client: MakeClient):
    bodies = [bytes([letter]) * 300_000 for letter in b"abcdefgh"]

    async def fetch_one(body: bytes) -> bytes:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
        return await fetch(make_client, Site(head + body))

    assert await asyncio.gather(*map(fetch_one, bodies)) == bodies
