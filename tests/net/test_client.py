"""The client sends requests, follows redirects, retries, and raises our own errors."""

from __future__ import annotations

import asyncio
import gzip
import socket
from dataclasses import replace

import pytest

from siteatlas.errors import ConnectionFailed, HttpProtocolError, ScanError, Timeout
from siteatlas.net.address import parse_url
from siteatlas.net.client import HttpClient, Politeness
from siteatlas.net.egress import EgressPolicy
from tests.fixtures.raw_server import Connection, PathServer, RawServer, whole_answer
from tests.net.conftest import QUICK, MakeClient, ask, read


def has_ipv6_loopback() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


SERVER_ERROR = whole_answer(status="500 Internal Server Error")


async def test_a_document_is_read_with_status_and_headers(make_client: MakeClient):
    answer = whole_answer(b"hello", headers=("Content-Type: text/xml", 'ETag: "1"'))
    async with (
        PathServer({"/a?b=%2F": answer}) as server,
        make_client(server.entry) as client,
        client.get(parse_url(server.url("/a?b=%2F"))) as response,
    ):
        assert await read(response) == b"hello"
        assert response.status == 200
        assert response.headers["etag"] == '"1"'
        assert response.wire_bytes == 5
        assert response.hops == ()
        assert response.error() is None
    assert server.paths == ["/a?b=%2F"]


@pytest.mark.skipif(not has_ipv6_loopback(), reason="there is no IPv6 here")
async def test_an_ipv6_literal_is_reached(make_client: MakeClient):
    async with (
        PathServer({"/": whole_answer()}, "::1") as server,
        make_client(server.entry) as client,
    ):
        response = await ask(client.get(parse_url(server.url())))
        assert response.status == 200


async def test_only_a_fixed_set_of_headers_is_sent(make_client: MakeClient, monkeypatch, tmp_path):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    answer = whole_answer(headers=("Set-Cookie: a=b",))
    async with PathServer({"/": answer}) as server, make_client(server.entry) as client:
        for _ in range(2):
            await ask(client.get(parse_url(server.url())))
    names = {line.split(":")[0] for line in server.requests[1].splitlines()[1:] if line}
    assert names == {"Host", "User-Agent", "Accept", "Accept-Encoding"}
    assert "Accept-Encoding: gzip\r\n" in server.requests[1]


async def test_the_body_is_handed_out_as_it_came_over_the_wire(make_client: MakeClient):
    packed = gzip.compress(b"x" * 1000)
    answer = whole_answer(packed, headers=("Content-Encoding: GZIP",))
    async with (
        PathServer({"/": answer}) as server,
        make_client(server.entry) as client,
        client.get(parse_url(server.url())) as response,
    ):
        assert response.content_encoding == "gzip"
        assert await read(response) == packed


async def test_requests_of_a_scan_share_a_connection(make_client: MakeClient):
    async with PathServer({"/": whole_answer(b"x")}) as server, make_client(server.entry) as client:
        for _ in range(5):
            async with client.get(parse_url(server.url())) as response:
                await read(response)
    assert len(server.requests) == 5
    assert server.connections == 1


async def test_a_conditional_request_may_be_answered_with_304(make_client: MakeClient):
    answer = b"HTTP/1.1 304 Not Modified\r\n\r\n"
    async with PathServer({"/": answer}) as server, make_client(server.entry) as client:
        address = parse_url(server.url())
        async with client.get(address, validators_of=lambda _: ('"v1"', "yesterday")) as response:
            assert response.status == 304
            assert await read(response) == b""
            assert response.error() is None
    assert 'If-None-Match: "v1"\r\n' in server.requests[0]
    assert "If-Modified-Since: yesterday\r\n" in server.requests[0]


async def test_validators_that_no_header_can_hold_are_not_sent(make_client: MakeClient):
    async with PathServer({"/": whole_answer()}) as server, make_client(server.entry) as client:
        await ask(client.get(parse_url(server.url()), validators_of=lambda _: ("a\r\nX: y", "é")))
    assert "If-" not in server.requests[0]


@pytest.mark.parametrize("status", ["304 Not Modified", "206 Partial Content"])
async def test_an_answer_to_a_question_not_asked_is_a_protocol_error(
    make_client: MakeClient, status: str
):
    answer = whole_answer(status=status)
    async with PathServer({"/": answer}) as server, make_client(server.entry) as client:
        with pytest.raises(HttpProtocolError):
            await ask(client.get(parse_url(server.url())))


@pytest.mark.parametrize("status", ["500 Oops", "502 Bad Gateway", "503 Busy", "504 Late"])
async def test_a_server_error_is_tried_again(make_client: MakeClient, status: str):
    answers: list[bytes] = [whole_answer(status=status)] * 2 + [whole_answer(b"ok")]
    async with (
        PathServer({"/": answers}) as server,
        make_client(server.entry) as client,
        client.get(parse_url(server.url())) as response,
    ):
        assert await read(response) == b"ok"
    assert len(server.requests) == 3


async def test_a_server_error_that_stays_is_returned_after_three_tries(make_client: MakeClient):
    async with (
        PathServer({"/": SERVER_ERROR}) as server,
        make_client(server.entry) as client,
        client.get(parse_url(server.url())) as response,
    ):
        assert response.status == 500
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [401, 403, 404, 410, 429, 451, 503])
async def test_an_answer_that_will_not_change_is_not_asked_for_again(
    make_client: MakeClient, status: int
):
    answer = whole_answer(status=f"{status} No", headers=("Retry-After: 7",))
    async with (
        PathServer({"/": answer}) as server,
        make_client(server.entry) as client,
        client.get(parse_url(server.url())) as response,
    ):
        assert response.status == status
        assert response.retry_after == 7
    assert len(server.requests) == 1


async def test_a_reset_is_tried_three_times(make_client: MakeClient):
    async def break_off(connection: Connection) -> None:
        await connection.request()
        connection.reset()

    async with RawServer(break_off) as server, make_client(server.entry) as client:
        with pytest.raises(ConnectionFailed):
            await ask(client.get(parse_url(server.url())))
    assert server.connections == 3


async def test_a_reset_that_passes_does_no_harm(make_client: MakeClient):
    async def break_off_once(connection: Connection) -> None:
        await connection.request()
        if server.connections == 1:
            connection.reset()
        else:
            await connection.answer(b"ok")

    async with (
        RawServer(break_off_once) as server,
        make_client(server.entry) as client,
        client.get(parse_url(server.url())) as response,
    ):
        assert await read(response) == b"ok"


async def test_a_silent_server_is_left_after_the_time_for_the_first_byte(make_client: MakeClient):
    async def say_nothing(connection: Connection) -> None:
        await connection.request()
        await asyncio.sleep(30)

    limits = replace(QUICK, first_byte=0.1)
    async with (
        RawServer(say_nothing) as server,
        make_client(server.entry, limits=limits) as client,
    ):
        with pytest.raises(Timeout):
            await asyncio.wait_for(ask(client.get(parse_url(server.url()))), 3)
    assert server.connections == 1


@pytest.mark.slow
async def test_a_server_that_has_answered_before_is_asked_again_when_it_falls_silent(
    make_client: MakeClient,
):
    async def answer_the_first(connection: Connection) -> None:
        await connection.request()
        if server.connections > 1:
            await asyncio.sleep(30)
        await connection.answer(b"ok", headers=("Connection: close",))

    limits = replace(QUICK, first_byte=0.1)
    async with (
        RawServer(answer_the_first) as server,
        make_client(server.entry, limits=limits) as client,
    ):
        await ask(client.get(parse_url(server.url())))
        with pytest.raises(Timeout):
            await asyncio.wait_for(ask(client.get(parse_url(server.url()))), 3)
    assert server.connections == 4


@pytest.mark.slow
async def test_headers_in_drops_do_not_hold_us(make_client: MakeClient):
    async def drip(connection: Connection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\n")
        for n in range(1000):
            await connection.send(b"X-%d: y\r\n" % n)
            await asyncio.sleep(0.05)

    limits = replace(QUICK, dns=0.1, connect=0.1, first_byte=0.2, tries=1)
    async with RawServer(drip) as server, make_client(server.entry, limits=limits) as client:
        with pytest.raises(Timeout):
            await asyncio.wait_for(ask(client.get(parse_url(server.url()))), 2)


async def test_a_closed_port_is_a_failed_connection_at_once(make_client: MakeClient):
    async with PathServer({}) as server:
        pass
    limits = replace(QUICK, retry_delay=60)
    async with make_client(server.entry, limits=limits) as client:
        with pytest.raises(ConnectionFailed):
            await asyncio.wait_for(ask(client.get(parse_url(server.url()))), 2)


@pytest.mark.parametrize(
    "head",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 999999 No\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\n" + (b"X: " + b"y" * 8000 + b"\r\n") * 9 + b"\r\n",
    ],
    ids=[
        "no http",
        "wild status",
        "negative length",
        "two lengths",
        "length and chunks",
        "upgrade",
        "long header",
        "many headers",
        "large headers",
    ],
)
async def test_an_answer_that_breaks_the_protocol_is_named_so(make_client: MakeClient, head: bytes):
    async def answer(connection: Connection) -> None:
        await connection.request()
        await connection.send(head)

    async with RawServer(answer) as server, make_client(server.entry) as client:
        with pytest.raises(HttpProtocolError):
            await ask(client.get(parse_url(server.url())))


async def test_a_flood_of_early_hints_is_bounded(make_client: MakeClient):
    async def flood(connection: Connection) -> None:
        await connection.request()
        while True:
            await connection.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 10)
            await asyncio.sleep(0.01)

    limits = replace(QUICK, dns=0.1, connect=0.1, first_byte=0.2, tries=1)
    async with RawServer(flood) as server, make_client(server.entry, limits=limits) as client:
        with pytest.raises(ScanError):
            await asyncio.wait_for(ask(client.get(parse_url(server.url()))), 2)


async def test_a_host_that_fails_again_and_again_is_left_to_rest(make_client: MakeClient):
    async def break_off(connection: Connection) -> None:
        connection.reset()

    limits = replace(QUICK, tries=1)
    async with (
        RawServer(break_off) as server,
        make_client(server.entry, limits=limits) as client,
    ):
        for _ in range(7):
            with pytest.raises(ConnectionFailed):
                await ask(client.get(parse_url(server.url())))
    assert server.connections == 5


async def test_server_errors_do_not_close_the_way_to_other_documents(make_client: MakeClient):
    answers = {"/bad": SERVER_ERROR, "/good": whole_answer(b"ok")}
    async with PathServer(dict(answers)) as server, make_client(server.entry) as client:
        for _ in range(6):
            async with client.get(parse_url(server.url("/bad"))) as response:
                assert response.status == 500
        async with client.get(parse_url(server.url("/good"))) as response:
            assert response.status == 200


async def test_the_operators_headers_go_to_no_other_host():
    sent: list[object] = []

    class Recorder(HttpClient):
        async def _send(self, address, headers, budget, ips):
            sent.append(headers)
            raise HttpProtocolError

    client = Recorder(EgressPolicy(), Politeness(0, 2), user_agent="x", headers={"X-Key": "y"})
    with pytest.raises(HttpProtocolError):
        await ask(client.get(parse_url("https://93.184.215.14/")))
    assert sent == [{"User-Agent": "x", "Accept": "*/*", "Accept-Encoding": "gzip"}]


async def test_the_operators_headers_go_to_his_own_hosts(make_client: MakeClient):
    async with PathServer({"/": whole_answer()}) as own:
        async with make_client(own.entry, headers={"X-Key": "secret"}) as client:
            await ask(client.get(parse_url(own.url())))
        assert "X-Key: secret" in own.requests[0]


async def test_leaving_early_gives_slot_and_connection_back(make_client: MakeClient):
    async def endless(connection: Connection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await connection.send(b"x" * 65536)

    begun = []
    async with RawServer(endless) as server, make_client(server.entry) as client:
        for _ in range(20):
            async with asyncio.timeout(2), client.get(parse_url(server.url())) as response:
                begun.append(await anext(aiter(response.chunks())))
    assert len(begun) == server.connections == 20
    assert all(begun)


async def test_an_error_of_the_reader_passes_through(make_client: MakeClient):
    async with PathServer({"/": whole_answer(b"x")}) as server, make_client(server.entry) as client:
        with pytest.raises(ConnectionFailed, match="mine"):
            async with client.get(parse_url(server.url())):
                raise ConnectionFailed("mine")
    assert len(server.requests) == 1


async def test_the_client_must_be_entered():
    client = HttpClient(EgressPolicy(), Politeness(0, 2), user_agent="x")
    with pytest.raises(RuntimeError):
        await ask(client.get(parse_url("http://1.1.1.1/")))
