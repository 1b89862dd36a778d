"""POST requests through the egress gate: what is sent, what counts as a response, what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web

from siteatlas.errors import ConnectionFailed, EgressDenied, SiteatlasError, Timeout
from siteatlas.net.address import parse_url
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.gate import Proxy
from siteatlas.net.posting import PostClient, PostResult
from tests.fixtures.raw_server import Connection, RawServer
from tests.fixtures.resolver import FakeResolver
from tests.fixtures.site_server import SiteServer


@pytest_asyncio.fixture
async def server() -> AsyncIterator[SiteServer]:
    async with SiteServer() as running:
        yield running


async def post(server: SiteServer, path: str = "/hook", seconds: float = 2.0) -> PostResult:
    policy = EgressPolicy.from_text(server.host_port)
    address = parse_url(f"{server.base}{path}")
    async with PostClient(address, policy, user_agent="test", seconds=seconds) as client:
        return await client.post(b'{"a": 1}', {"content-type": "application/json"})


async def test_the_body_and_the_headers_arrive(server: SiteServer):
    bodies = []

    async def keep(request: web.BaseRequest) -> web.Response:
        bodies.append(await request.read())
        return web.Response(status=202)

    server.pages["/hook"] = keep
    assert await post(server) == PostResult(202, None)
    (request,) = server.requests
    assert (request.method, bodies) == ("POST", [b'{"a": 1}'])
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["User-Agent"] == "test"


async def test_a_redirect_is_returned_and_not_followed(server: SiteServer):
    server.pages["/hook"] = web.Response(status=307, headers={"Location": "/other"})
    assert (await post(server)).status == 307
    assert server.paths == ["/hook"]


async def test_a_response_may_ask_us_to_wait(server: SiteServer):
    server.pages["/hook"] = web.Response(status=429, headers={"Retry-After": "7"})
    assert await post(server) == PostResult(429, 7.0)


@pytest.mark.parametrize("seconds", [5, 0.3], ids=["in time", "beyond the time for a response"])
async def test_a_body_without_end_does_not_matter(server: SiteServer, seconds: float):
    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(status=200)
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    server.pages["/hook"] = endless
    assert (await post(server, seconds=seconds)).status == 200


async def test_a_broken_body_does_not_matter():
    async def respond(connection: Connection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await asyncio.sleep(0.1)
        await connection.send(b"no chunk\r\n")
        await connection.request()

    async with RawServer(respond) as raw:
        policy = EgressPolicy.from_text(raw.entry)
        async with PostClient(parse_url(raw.url()), policy, user_agent="test", seconds=2) as client:
            assert (await client.post(b"", {})).status == 200


async def test_a_receiver_that_does_not_answer_is_a_timeout(server: SiteServer):
    async def silent(_request: web.BaseRequest) -> bytes:
        await asyncio.Event().wait()
        return b""

    server.pages["/hook"] = silent
    with pytest.raises(Timeout):
        await post(server, seconds=0.1)


async def test_a_closed_port_is_a_failed_connection(server: SiteServer):
    await server.stop()
    with pytest.raises(ConnectionFailed):
        await post(server)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://127.0.0.1:{port}/", ""),
        ("http://hooks.example.com/", "127.0.0.0/8:80"),
    ],
    ids=["private address", "public name in an allowed range"],
)
async def test_what_may_not_be_contacted_is_refused(server: SiteServer, url: str, allowed: str):
    policy = EgressPolicy.from_text(allowed)
    address = parse_url(url.format(port=server.port))
    resolver = FakeResolver({"hooks.example.com": ("127.0.0.1",)})
    async with PostClient(
        address, policy, user_agent="test", seconds=2, resolver=resolver
    ) as client:
        with pytest.raises(EgressDenied):
            await client.post(b"", {})
    assert server.requests == []


async def test_a_public_receiver_is_reached_through_the_proxy_of_the_operator(server: SiteServer):
    server.otherwise = web.Response(status=204)
    address = parse_url("http://hooks.example.com/siteatlas")
    proxy = Proxy("127.0.0.1", server.port)
    async with PostClient(
        address, EgressPolicy(), user_agent="test", seconds=2, proxy=proxy
    ) as client:
        assert (await client.post(b"", {})).status == 204
    assert [str(request.url) for request in server.requests] == [address.url]


async def test_a_client_must_be_entered(server: SiteServer):
    policy = EgressPolicy.from_text(server.host_port)
    client = PostClient(parse_url(server.base), policy, user_agent="test", seconds=1)
    with pytest.raises((RuntimeError, SiteatlasError)):
        await client.post(b"", {})
