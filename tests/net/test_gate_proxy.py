"""Requests through the operator's proxy: plain and tunnelled, and what is still refused."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from siteatlas.errors import (
    ConfigurationError,
    ConnectionFailed,
    DnsNameUnknown,
    EgressDenied,
    ProxyFailed,
)
from siteatlas.net.address import parse_url
from siteatlas.net.gate import Proxy
from tests.fixtures.raw_server import PathServer, redirect, whole_answer
from tests.fixtures.resolver import FakeResolver
from tests.net.conftest import MakeClient, ask, read

CERTIFICATES = Path(__file__).parent / "certificates"
NOBODY = FakeResolver({})


class ForwardProxy:
    """A small HTTP proxy that leads every name to one port of this machine."""

    def __init__(self, target: int, *, status: int = 200, host: str = "127.0.0.1") -> None:
        self._host = host
        self._target = target
        self._status = status
        self.port = 0
        self.requests: list[str] = []
        self.heads: list[bytes] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ForwardProxy]:
        server = await asyncio.start_server(self._serve, self._host, 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        line, _, fields = head.partition(b"\r\n")
        method, url, version = line.split()
        self.requests.append(f"{method.decode()} {url.decode()}")
        self.heads.append(head)
        if self._status != 200:
            writer.write(f"HTTP/1.1 {self._status} No\r\nContent-Length: 0\r\n\r\n".encode())
            writer.close()
            return
        onward, outward = await asyncio.open_connection("127.0.0.1", self._target)
        if method == b"CONNECT":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            path = b"/" + url.split(b"/", 3)[3]
            outward.write(b" ".join([method, path, version]) + b"\r\n" + fields)
        await asyncio.gather(_copy(reader, outward), _copy(onward, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def test_a_plain_site_is_asked_through_the_proxy_which_resolves_its_name(
    make_client: MakeClient,
):
    async with (
        PathServer({"/a.xml": whole_answer(b"seen")}) as server,
        ForwardProxy(server.port).running() as proxy,
        make_client(proxy=Proxy.parse(proxy.address), resolver=NOBODY) as client,
        client.get(parse_url("http://shop.example.com/a.xml")) as response,
    ):
        assert await read(response) == b"seen"
    assert proxy.requests == ["GET http://shop.example.com/a.xml"]
    assert NOBODY.asked == []


async def test_a_site_with_tls_is_asked_through_a_tunnel(make_client: MakeClient):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(CERTIFICATES / "site-a.pem")
    trust = ssl.create_default_context(cafile=str(CERTIFICATES / "authority.pem"))
    trust.check_hostname = False
    async with (
        PathServer({"/": whole_answer(b"safe")}, tls=tls) as server,
        ForwardProxy(server.port).running() as proxy,
        make_client(proxy=Proxy.parse(proxy.address), resolver=NOBODY, tls=trust) as client,
        client.get(parse_url("https://shop.example.com/")) as response,
    ):
        assert await read(response) == b"safe"
    assert proxy.requests == ["CONNECT shop.example.com:443"]


async def test_credentials_go_to_the_proxy_with_every_request_and_tunnel(make_client: MakeClient):
    async with (
        PathServer({"/": whole_answer()}) as server,
        ForwardProxy(server.port).running() as plain,
        ForwardProxy(server.port, status=403).running() as tunnel,
    ):
        for proxy, url in ((plain, "http://shop.example.com/"), (tunnel, "https://a.example.com/")):
            address = proxy.address.replace("//", "//me:p%40ss@")
            async with make_client(proxy=Proxy.parse(address), resolver=NOBODY) as client:
                with suppress(ProxyFailed):
                    await ask(client.get(parse_url(url)))
    sent = b"Proxy-Authorization: Basic " + base64.b64encode(b"me:p@ss")
    assert [sent in head for head in (*plain.heads, *tunnel.heads)] == [True, True]


async def test_a_host_of_ones_own_is_asked_directly(make_client: MakeClient):
    async with (
        PathServer({"/": whole_answer(b"mine")}) as server,
        ForwardProxy(server.port).running() as proxy,
        make_client(f"127.0.0.1:{server.port}", proxy=Proxy.parse(proxy.address)) as client,
        client.get(parse_url(f"http://127.0.0.1:{server.port}/")) as response,
    ):
        assert await read(response) == b"mine"
    assert proxy.requests == []


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1/", "http://example.com:3000/", "http://localhost/", "http://a.lan/"]
)
async def test_an_address_that_is_obviously_denied_is_refused_before_the_proxy_is_used(
    make_client: MakeClient, url: str
):
    async with (
        ForwardProxy(1).running() as proxy,
        make_client(proxy=Proxy.parse(proxy.address)) as client,
    ):
        with pytest.raises(EgressDenied):
            await ask(client.get(parse_url(url)))
    assert proxy.requests == []


async def test_a_redirect_to_a_private_address_is_refused(make_client: MakeClient):
    async with (
        PathServer({"/": redirect("http://169.254.169.254/")}) as server,
        ForwardProxy(server.port).running() as proxy,
        make_client(proxy=Proxy.parse(proxy.address), resolver=NOBODY) as client,
    ):
        with pytest.raises(EgressDenied):
            await ask(client.get(parse_url("http://shop.example.com/")))
    assert len(proxy.requests) == 1


@pytest.mark.parametrize(
    ("url", "status", "error"),
    [
        ("https://shop.example.com/", 403, ProxyFailed),
        ("https://shop.example.com/", 407, ProxyFailed),
        ("https://shop.example.com/", 502, ConnectionFailed),
    ],
)
async def test_a_proxy_that_opens_no_tunnel_says_whose_fault_it_is(
    make_client: MakeClient, url: str, status: int, error: type[Exception]
):
    async with (
        ForwardProxy(1, status=status).running() as proxy,
        make_client(proxy=Proxy.parse(proxy.address), resolver=NOBODY) as client,
    ):
        with pytest.raises(error, match=f"status {status}"):
            await ask(client.get(parse_url(url)))


async def test_a_proxy_that_is_away_is_named(make_client: MakeClient, unused_tcp_port: int):
    away = Proxy("127.0.0.1", unused_tcp_port)
    async with make_client(proxy=away, resolver=NOBODY) as client:
        with pytest.raises(ProxyFailed, match="SITEATLAS_PROXY") as unreachable:
            await ask(client.get(parse_url("http://shop.example.com/")))
    unknown = Proxy("proxy.example.net", 3128)
    async with make_client(proxy=unknown, resolver=NOBODY) as client:
        with pytest.raises(ProxyFailed) as unresolved:
            await ask(client.get(parse_url("http://shop.example.com/")))
    assert not isinstance(unresolved.value, DnsNameUnknown)
    assert unresolved.value.message != unreachable.value.message


@pytest.mark.parametrize(
    "text",
    [
        "proxy:3128",
        "https://proxy:3128",
        "http://proxy",
        "http://:3128",
        "http://a:1/x",
        "http://a:x",
    ],
)
def test_an_address_that_is_no_proxy_is_refused_without_repeating_it(text: str):
    with pytest.raises(ConfigurationError, match="http://HOST:PORT") as raised:
        Proxy.parse(text)
    assert text not in str(raised.value)


@pytest.mark.parametrize(
    "text", ["[0:0:0:0:0:0:0:1]", "[::0001]", "[2001:DB8:0:0::1]", "127.0.0.1", "Proxy.example"]
)
def test_a_proxy_has_the_host_that_the_http_client_asks_for(text: str):
    proxy = Proxy.parse(f"http://{text}:3128")
    assert proxy.host == proxy.url.raw_host
    assert str(proxy) == str(proxy.url).rstrip("/")


async def test_a_proxy_with_a_long_ipv6_address_is_used(make_client: MakeClient):
    async with (
        PathServer({"/a.xml": whole_answer(b"seen")}) as server,
        ForwardProxy(server.port, host="::1").running() as proxy,
        make_client(
            proxy=Proxy.parse(f"http://[0:0:0:0:0:0:0:1]:{proxy.port}"), resolver=NOBODY
        ) as client,
        client.get(parse_url("http://shop.example.com/a.xml")) as response,
    ):
        assert await read(response) == b"seen"


def test_a_proxy_is_shown_without_its_password():
    proxy = Proxy.parse("http://me:secret@[::1]:3128/")
    assert str(proxy) == "http://[::1]:3128"
    assert "secret" not in repr(proxy)
