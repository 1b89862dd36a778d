"""Scans share one client: lookups, but neither connections, policy, headers nor cookies."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from siteatlas.errors import ConnectionFailed, DnsError, EgressDenied
from siteatlas.net import gate as gates
from siteatlas.net.address import parse_url
from siteatlas.net.client import HttpClient, Politeness
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.gate import Gate, OriginHeaders, admits_peer, choose_connect_target
from siteatlas.scanner.analyzer import SitemapAnalyzer
from siteatlas.scanner.events import DocumentClosed
from tests.fixtures.documents import urlset_of
from tests.fixtures.raw_server import Connection, PathServer, RawServer, redirect, whole_answer
from tests.fixtures.resolver import FakeResolver
from tests.fixtures.scans import record_scan
from tests.net.conftest import QUICK, MakeClient, ask, read

PAGE = whole_answer(b"x")


async def fetch(client: HttpClient, url: str) -> None:
    async with client.get(parse_url(url)) as response:
        await read(response)


async def becomes_true(condition: Callable[[], bool]) -> bool:
    for _ in range(200):
        if condition():
            return True
        await asyncio.sleep(0.01)
    return False


@pytest.mark.parametrize("name", ["127.0.0.2", "a.corp.example"])
async def test_a_public_site_cannot_use_the_open_connection_of_a_scan_inside(name: str):
    inside = PathServer({"/": PAGE}, "127.0.0.2")
    outside = PathServer({})
    async with inside, outside:
        outside.answers = {
            "/robots.txt": whole_answer(b"Sitemap: /s.xml\nSitemap: /good.xml"),
            "/s.xml": redirect(inside.url("/secret.xml", host=name)),
            "/good.xml": whole_answer(urlset_of(["https://b.example.com/1"])),
        }
        policy = EgressPolicy.from_text(
            f"*.corp.example:{inside.port},127.0.0.2/32:{inside.port},b.example.com:{outside.port}"
        )
        resolver = FakeResolver({"b.example.com": ("127.0.0.1",), "a.corp.example": ("127.0.0.2",)})
        gate = Gate(resolver)
        client = HttpClient(policy, Politeness(0, 2), user_agent="x", limits=QUICK, gate=gate)
        analyzer = SitemapAnalyzer(
            policy, Politeness(0, 2), user_agent="x", limits=QUICK, gate=gate
        )
        async with client:
            site = inside.url(host=name)
            await fetch(client.for_site(parse_url(site)), site)
            assert inside.open_connections == 1
            record = await record_scan(analyzer, outside.url(host="b.example.com"))
            assert inside.open_connections == 1
    assert record.urls == ["https://b.example.com/1"]
    assert "egress_denied" in {event.error_code for event in record.all(DocumentClosed)}
    assert inside.paths == ["/"]


async def test_a_used_connection_is_checked_with_the_policy_of_the_next_request():
    inside = EgressPolicy.from_text("127.0.0.0/8:80")
    address = parse_url("http://site.example.com/")

    def use(policy: EgressPolicy, peer: str) -> bool:
        with choose_connect_target(address, policy):
            return admits_peer((peer, 80))

    assert use(inside, "93.184.215.14")
    for policy in (EgressPolicy(), inside):
        with pytest.raises(EgressDenied):
            use(policy, "127.0.0.1")


async def test_a_scan_uses_no_connection_of_another(make_client: MakeClient):
    async with PathServer({"/": PAGE}) as server, make_client(server.entry) as client:
        site = parse_url(server.url())
        first, second = client.for_site(site), client.for_site(site)
        for _ in range(2):
            await fetch(first, server.url())
            await fetch(second, server.url())
        assert server.connections == 2
        first.close_idle()
        assert await becomes_true(lambda: server.open_connections == 1)


async def test_a_response_that_nobody_asked_for_is_not_taken_for_the_next_one(
    make_client: MakeClient,
):
    async def answer_twice(connection: Connection) -> None:
        while (request := await connection.request()) is not None:
            path = request.split()[1].encode()
            await connection.answer(path)
            if path == b"/1":
                await asyncio.sleep(0.02)
                await connection.send(whole_answer(b"stray", status="408 Request Timeout"))

    async with RawServer(answer_twice) as server, make_client(server.entry) as client:
        read_bodies = []
        for path in ("/1", "/2", "/3"):
            async with client.get(parse_url(server.url(path))) as response:
                read_bodies.append(await read(response))
            await asyncio.sleep(0.05)
    assert read_bodies == [b"/1", b"/2", b"/3"]
    assert server.connections == 2


async def test_a_connection_to_where_the_name_led_before_is_not_used_again():
    async with PathServer({"/": PAGE}) as server:
        moving = FakeResolver({"a.corp.example": [("127.0.0.1",), ("127.0.0.2",)]})
        policy = EgressPolicy.from_text(f"*.corp.example:{server.port},127.0.0.0/8:{server.port}")
        url = server.url(host="a.corp.example")
        limits = replace(QUICK, dns_cache=0, tries=1)
        client = HttpClient(
            policy, Politeness(0, 2), user_agent="x", limits=limits, resolver=moving
        )
        async with client:
            scan = client.for_site(parse_url(url))
            await fetch(scan, url)
            # Nothing listens there.
            with pytest.raises(ConnectionFailed):
                await fetch(scan, url)
    assert len(server.requests) == 1


async def test_scans_share_lookups(make_client: MakeClient):
    async with PathServer({"/": PAGE}) as server:
        resolver = FakeResolver({"site-a.test": ("127.0.0.1",)})
        url = server.url(host="site-a.test")
        async with make_client(f"site-a.test:{server.port}", resolver=resolver) as client:
            for _ in range(3):
                await fetch(client.for_site(parse_url(url)), url)
    assert resolver.asked == ["site-a.test"]


async def test_the_names_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gates, "MAX_CACHED_NAMES", 3)
    names = [f"n{number}.example.com" for number in range(5)]
    resolver = FakeResolver(dict.fromkeys(names, ("93.184.215.14",)))
    async with Gate(resolver) as gate:
        for name in (*names, *reversed(names)):
            await gate.look_up(parse_url(f"http://{name}/"), EgressPolicy(), QUICK)
    assert resolver.asked == [*names, names[1], names[0]]


async def test_a_name_with_hundreds_of_addresses_is_refused():
    many = tuple(f"93.184.{third}.{last}" for third in range(4) for last in range(1, 100))
    async with Gate(FakeResolver({"many.example.com": many})) as gate:
        with pytest.raises(DnsError, match="more than 64 addresses"):
            await gate.look_up(parse_url("http://many.example.com/"), EgressPolicy(), QUICK)


async def test_headers_of_one_site_and_cookies_reach_no_other_scan(make_client: MakeClient):
    cookie = whole_answer(b"x", headers=("Set-Cookie: session=1",))
    async with PathServer({"/": cookie}) as server, make_client(server.entry) as client:
        site = parse_url(server.url())
        headers = OriginHeaders(site.origin, {"X-Key": "secret"})
        await fetch(client.for_site(site, headers=headers), server.url())
        await fetch(client.for_site(site), server.url())
        await fetch(client, server.url())
    assert ["X-Key" in request for request in server.requests] == [True, False, False]
    assert not any("Cookie" in request for request in server.requests)


async def test_a_request_that_is_cancelled_spoils_no_connection(make_client: MakeClient):
    async def respond(connection: Connection) -> None:
        while (request := await connection.request()) is not None:
            if "/stuck" in request:
                await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nxx")
            else:
                await connection.answer(b"whole")

    async with RawServer(respond) as server, make_client(server.entry) as client:

        async def stuck() -> None:
            async with client.get(parse_url(server.url("/stuck"))) as response:
                await read(response)

        for _ in range(4):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(stuck(), 0.05)
            async with client.get(parse_url(server.url("/other"))) as response:
                assert await read(response) == b"whole"
        assert await becomes_true(lambda: server.open_connections == 1)


async def test_the_last_user_closes_the_connections(make_client: MakeClient):
    async with PathServer({"/": PAGE}) as server:
        client = make_client(server.entry)
        async with client:
            async with client:
                await fetch(client, server.url())
            await fetch(client, server.url())
            assert server.connections == server.open_connections == 1
        assert await becomes_true(lambda: server.open_connections == 0)


async def test_a_scan_leaves_no_idle_connection_behind(make_client: MakeClient):
    pages: dict[str, bytes | list[bytes]] = {
        "/robots.txt": whole_answer(b"Sitemap: /s.xml"),
        "/s.xml": whole_answer(urlset_of(["https://a.example/"])),
    }
    async with PathServer(pages) as server:
        gate = Gate(FakeResolver({}))
        analyzer = SitemapAnalyzer(
            EgressPolicy.from_text(server.entry),
            Politeness(0, 2),
            user_agent="x",
            limits=QUICK,
            gate=gate,
        )
        async with gate:
            record = await record_scan(analyzer, server.url())
            assert await becomes_true(lambda: server.open_connections == 0)
    assert record.urls == ["https://a.example/"]
    assert server.connections == 1


async def test_idle_connections_are_bounded_in_number(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gates, "MAX_IDLE_HOSTS", 2)
    async with PathServer({"/": PAGE}) as server:
        names = [f"site-{number}.test" for number in range(6)]
        resolver = FakeResolver(dict.fromkeys(names, ("127.0.0.1",)))
        entries = [f"{name}:{server.port}" for name in names]
        async with make_client(*entries, resolver=resolver) as client:
            for name in names:
                await fetch(client, server.url(host=name))
            assert await becomes_true(lambda: server.open_connections == 2)


async def test_idle_connections_are_bounded_in_time(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gates, "IDLE_SECONDS", 0.05)
    async with PathServer({"/": PAGE}) as server, make_client(server.entry) as client:
        await fetch(client, server.url())
        assert await becomes_true(lambda: server.open_connections == 0)


@pytest.mark.slow
def test_one_client_serves_several_event_loops(make_client: MakeClient):
    statuses: list[int] = []

    async def use(client: HttpClient, server: PathServer) -> None:
        async with client:
            statuses.append((await ask(client.get(parse_url(server.url())))).status)

    async def main() -> None:
        async with PathServer({"/": PAGE}) as server:
            client = make_client(server.entry)
            async with client:
                threads = [
                    threading.Thread(target=asyncio.run, args=(use(client, server),))
                    for _ in range(3)
                ]
                for thread in threads:
                    thread.start()
                await use(client, server)
                for thread in threads:
                    await asyncio.to_thread(thread.join)

    asyncio.run(main())
    asyncio.run(main())
    assert statuses == [200] * 8


async def test_a_connection_that_the_site_closed_without_a_word_is_not_used_again(
    make_client: MakeClient,
):
    async def answer_once(connection: Connection) -> None:
        await connection.request()
        await connection.answer(b"x")

    limits = replace(QUICK, tries=1)
    async with RawServer(answer_once) as server, make_client(server.entry, limits=limits) as client:
        for _ in range(5):
            await fetch(client, server.url())
    assert server.connections == 5
