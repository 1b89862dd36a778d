"""TLS is always verified, name by name, and never replaced by plain http."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace

import pytest

from siteatlas.errors import ConnectionFailed, Timeout, TlsError
from siteatlas.net.address import parse_url
from tests.fixtures.certificates import presenting, trusting
from tests.fixtures.raw_server import Connection, PathServer, RawServer, redirect, whole_answer
from tests.fixtures.resolver import FakeResolver
from tests.net.conftest import QUICK, MakeClient, ask, read

RESOLVER = FakeResolver({"site-a.test": ("127.0.0.1",), "site-b.test": ("127.0.0.1",)})


@pytest.fixture
def trust() -> ssl.SSLContext:
    return trusting()


async def test_a_good_certificate_is_accepted(make_client: MakeClient, trust: ssl.SSLContext):
    async with PathServer({"/": whole_answer(b"safe")}, tls=presenting("site-a")) as server:
        entry = f"site-a.test:{server.port}"
        async with (
            make_client(entry, resolver=RESOLVER, tls=trust) as client,
            client.get(parse_url(server.url(host="site-a.test"))) as response,
        ):
            assert await read(response) == b"safe"


@pytest.mark.parametrize("name", ["site-b", "expired"])
async def test_a_wrong_or_expired_certificate_is_refused(
    make_client: MakeClient, trust: ssl.SSLContext, name: str
):
    async with PathServer({"/": whole_answer()}, tls=presenting(name)) as server:
        entry = f"site-a.test:{server.port}"
        async with make_client(entry, resolver=RESOLVER, tls=trust) as client:
            with pytest.raises(TlsError):
                await ask(client.get(parse_url(server.url(host="site-a.test"))))
        assert server.requests == []


async def test_an_unknown_authority_is_refused_by_default(make_client: MakeClient):
    async with PathServer({"/": whole_answer()}, tls=presenting("site-a")) as server:
        async with make_client(f"site-a.test:{server.port}", resolver=RESOLVER) as client:
            with pytest.raises(TlsError):
                await ask(client.get(parse_url(server.url(host="site-a.test"))))
        assert server.requests == []


async def test_each_name_is_asked_for_by_its_own_name(
    make_client: MakeClient, trust: ssl.SSLContext
):
    asked: list[str] = []
    contexts = {f"{name}.test": presenting(name) for name in ("site-a", "site-b")}

    def choose(connection: ssl.SSLObject, name: str, _: ssl.SSLContext) -> None:
        asked.append(name)
        connection.context = contexts[name]

    first = presenting("site-a")
    first.sni_callback = choose
    async with PathServer({"/": whole_answer(b"x")}, tls=first) as server:
        entries = [f"{name}:{server.port}" for name in contexts]
        async with make_client(*entries, resolver=RESOLVER, tls=trust) as client:
            for name in (*contexts, *contexts):
                async with client.get(parse_url(server.url(host=name))) as response:
                    await read(response)
    assert asked == ["site-a.test", "site-b.test"]


async def test_a_redirect_from_https_to_http_is_followed(
    make_client: MakeClient, trust: ssl.SSLContext
):
    async with PathServer({"/": whole_answer(b"plain")}) as plain:
        safe = PathServer({"/": redirect(plain.url())}, tls=presenting("site-a"))
        async with safe:
            entries = (plain.entry, f"site-a.test:{safe.port}")
            async with (
                make_client(*entries, resolver=RESOLVER, tls=trust) as client,
                client.get(parse_url(safe.url(host="site-a.test"))) as response,
            ):
                assert await read(response) == b"plain"
                assert [*response.hops, response.address.url] == [
                    safe.url(host="site-a.test"),
                    plain.url(),
                ]


async def test_a_broken_handshake_is_tried_again(make_client: MakeClient):
    async def hang_up(connection: Connection) -> None:
        await connection.reader.read(1)

    async with (
        RawServer(hang_up) as server,
        make_client(server.entry) as client,
    ):
        with pytest.raises(ConnectionFailed):
            await ask(client.get(parse_url(f"https://{server.entry}/")))
    assert server.connections == 3


async def test_a_silent_handshake_is_a_timeout(make_client: MakeClient):
    async def say_nothing(connection: Connection) -> None:
        await asyncio.sleep(30)

    limits = replace(QUICK, connect=0.2, tries=1)
    async with RawServer(say_nothing) as server, make_client(server.entry, limits=limits) as client:
        with pytest.raises(Timeout):
            await ask(client.get(parse_url(f"https://{server.entry}/")))


async def test_plain_http_on_a_tls_port_is_a_tls_error(make_client: MakeClient):
    async with (
        RawServer(lambda connection: connection.answer(b"hello")) as server,
        make_client(server.entry) as client,
    ):
        with pytest.raises(TlsError):
            await ask(client.get(parse_url(f"https://{server.entry}/")))
