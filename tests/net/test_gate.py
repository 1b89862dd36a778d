"""What names resolve to is checked, and nothing but the checked address is connected to."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from siteatlas.errors import DnsError, DnsNameUnknown, EgressDenied
from siteatlas.net.address import WebAddress, parse_url
from siteatlas.net.client import HttpClient, Politeness
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.gate import MAX_ADDRESSES, Gate, admits_peer, choose_connect_target
from tests.fixtures.raw_server import PathServer, redirect, whole_answer
from tests.fixtures.resolver import FakeResolver
from tests.net.conftest import QUICK, MakeClient, ask, read

PUBLIC = "93.184.215.14"
POLICY = EgressPolicy()
UNCACHED = replace(QUICK, dns_cache=0)


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(["127.0.0.1"], id="row-121"),
        pytest.param([PUBLIC, "10.0.0.1"], id="row-122"),
        pytest.param([PUBLIC, "::1"], id="row-123"),
        pytest.param(["64:ff9b::a9fe:a9fe"], id="row-126"),
        pytest.param(["fe80::1%eth0"], id="row-154-scope"),
        pytest.param(["::ffff:93.184.215.14"], id="row-154-mapped"),
        pytest.param(["169.254.169.254"], id="metadata"),
        pytest.param(["127.1"], id="no address"),
    ],
)
async def test_one_forbidden_record_refuses_the_name(make_client: MakeClient, records: list[str]):
    resolver = FakeResolver({"site.example.com": tuple(records)})
    async with make_client(resolver=resolver) as client:
        with pytest.raises(EgressDenied):
            await ask(client.get(parse_url("http://site.example.com/")))
    assert resolver.asked == ["site.example.com"]


async def test_an_allowed_name_that_ends_in_localhost_is_this_machine_for_any_name_server(
    make_client: MakeClient,
):
    resolver = FakeResolver({"shop.localhost": ("10.0.0.1",)})
    async with (
        PathServer({"/": whole_answer(b"x")}) as server,
        make_client(f"shop.localhost:{server.port}", resolver=resolver) as client,
        client.get(parse_url(server.url(host="shop.localhost"))) as response,
    ):
        assert await read(response) == b"x"
    assert f"Host: shop.localhost:{server.port}" in server.requests[0]
    assert resolver.asked == []


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param("", id="nothing allowed"),
        pytest.param("cart.localhost:{port}", id="another name"),
        pytest.param("shop.localhost:1", id="another port"),
        pytest.param("shop.localhost", id="usual ports"),
        pytest.param("localhost:{port}", id="the name above"),
        pytest.param("a.shop.localhost:{port}", id="a name below"),
        pytest.param("shop.localhost.example.com:{port}", id="a longer name"),
        pytest.param("*.localhost:{port}", id="wildcard"),
        pytest.param("127.0.0.1:{port}", id="address"),
        pytest.param("127.0.0.0/8:{port}", id="range"),
    ],
)
async def test_any_other_name_that_ends_in_localhost_stays_refused(
    entry: str, make_client: MakeClient
):
    async with PathServer({"/": whole_answer(b"x")}) as server:
        allowed = entry.format(port=server.port)
        async with make_client(allowed, resolver=FakeResolver({})) as client:
            with pytest.raises((EgressDenied, DnsNameUnknown)):
                await ask(client.get(parse_url(server.url(host="shop.localhost"))))
    assert server.requests == []


async def test_a_name_that_a_wildcard_and_a_range_allow_is_left_to_the_name_server(
    make_client: MakeClient,
):
    resolver = FakeResolver({"shop.localhost": ("127.0.0.1",)})
    async with PathServer({"/": whole_answer(b"x")}) as server:
        entries = (f"*.localhost:{server.port}", f"127.0.0.0/8:{server.port}")
        async with make_client(*entries, resolver=resolver) as client:
            await ask(client.get(parse_url(server.url(host="shop.localhost"))))
    assert resolver.asked == ["shop.localhost"]


async def test_the_bare_name_localhost_is_looked_up(make_client: MakeClient):
    resolver = FakeResolver({"localhost": ("127.0.0.1",)})
    async with (
        PathServer({"/": whole_answer(b"x")}) as server,
        make_client(f"localhost:{server.port}", resolver=resolver) as client,
    ):
        await ask(client.get(parse_url(server.url(host="localhost"))))
    assert resolver.asked == ["localhost"]


async def test_a_local_name_does_not_lead_to_the_port_of_this_service():
    async with PathServer({"/": whole_answer(b"x")}) as server:
        policy = EgressPolicy.from_text(f"shop.localhost:{server.port}")
        policy = policy.with_refused_socket("127.0.0.1", server.port)
        async with HttpClient(policy, Politeness(0, 2), user_agent="test") as client:
            with pytest.raises(EgressDenied):
                await ask(client.get(parse_url(server.url(host="shop.localhost"))))
    assert server.requests == []


async def test_a_named_host_is_reached_at_the_address_of_one_lookup(make_client: MakeClient):
    async with PathServer({"/": whole_answer(b"x", headers=("Connection: close",))}) as server:
        resolver = FakeResolver({"site-a.test": [("127.0.0.1",), ("127.0.0.2",)]})
        async with make_client(f"site-a.test:{server.port}", resolver=resolver) as client:
            for _ in range(3):
                address = parse_url(server.url(host="site-a.test"))
                async with client.get(address) as response:
                    assert await read(response) == b"x"
        assert f"Host: site-a.test:{server.port}" in server.requests[0]
    assert resolver.asked == ["site-a.test"]


async def test_a_name_that_turns_to_the_inside_is_never_connected_to():
    resolver = FakeResolver({"site.example.com": [(PUBLIC,), ("127.0.0.1",)]})
    gate = Gate(resolver)
    address = parse_url("http://site.example.com/")
    with choose_connect_target(address, POLICY, UNCACHED):
        assert [found["host"] for found in await gate.resolve(address.host, 80)] == [PUBLIC]
    with pytest.raises(EgressDenied), choose_connect_target(address, POLICY, UNCACHED):
        await gate.resolve(address.host, 80)


async def test_a_redirect_to_a_name_of_the_inside_is_refused(make_client: MakeClient):
    async with PathServer({"/": redirect("http://inside.example.com/")}) as server:
        resolver = FakeResolver({"inside.example.com": ("127.0.0.1",)})
        async with make_client(server.entry, resolver=resolver) as client:
            with pytest.raises(EgressDenied):
                await ask(client.get(parse_url(server.url())))


async def test_two_names_on_one_address_have_connections_of_their_own(make_client: MakeClient):
    async with PathServer({"/": whole_answer(b"x")}) as server:
        names = ("site-a.test", "site-b.test")
        resolver = FakeResolver(dict.fromkeys(names, ("127.0.0.1",)))
        entries = [f"{name}:{server.port}" for name in names]
        async with make_client(*entries, resolver=resolver) as client:
            for name in (*names, *names):
                async with client.get(parse_url(server.url(host=name))) as response:
                    await read(response)
        assert server.connections == 2


async def test_an_unknown_name_is_reported_as_unknown(make_client: MakeClient):
    resolver = FakeResolver({"empty.example.com": ()})
    async with make_client(resolver=resolver) as client:
        for name in ("nowhere.example.com", "empty.example.com"):
            with pytest.raises(DnsNameUnknown):
                await ask(client.get(parse_url(f"http://{name}/")))
    assert len(resolver.asked) == 2


@pytest.mark.slow
async def test_a_slow_lookup_is_given_up(make_client: MakeClient):
    class SlowResolver:
        async def addresses(self, host: str) -> Sequence[str]:
            await asyncio.sleep(60)
            return [PUBLIC]

    async with make_client(resolver=SlowResolver(), limits=replace(QUICK, dns=0.1)) as client:
        with pytest.raises(DnsError):
            await asyncio.wait_for(ask(client.get(parse_url("http://slow.example.com/"))), 5)


def info(ip: str, port: int, family: int = socket.AF_INET):
    return (family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (ip, port))


def checked_gate() -> Gate:
    resolver = FakeResolver({"site.example.com": (PUBLIC,)})
    return Gate(resolver)


@pytest.mark.parametrize(
    ("ip", "port"), [("93.184.215.15", 80), (PUBLIC, 8080), ("127.0.0.1", 80), ("::1", 80)]
)
async def test_no_socket_is_made_for_anything_but_the_checked_address(ip: str, port: int):
    gate = checked_gate()

    async def connect() -> None:
        with choose_connect_target(parse_url("http://site.example.com/"), POLICY):
            await gate.resolve("site.example.com", 80)
            gate.open_socket(info(ip, port))

    with pytest.raises(EgressDenied):
        await connect()


async def test_no_socket_is_made_for_a_literal_that_is_private():
    gate = checked_gate()
    with pytest.raises(EgressDenied), choose_connect_target(parse_url("http://127.0.0.1/"), POLICY):
        gate.open_socket(info("127.0.0.1", 80))


async def test_no_socket_is_made_for_another_family():
    gate = checked_gate()
    with pytest.raises(EgressDenied), choose_connect_target(parse_url("http://1.1.1.1/"), POLICY):
        gate.open_socket(info("1.1.1.1", 80, socket.AF_UNIX))


async def test_no_socket_is_made_without_a_target():
    gate = checked_gate()
    with pytest.raises(EgressDenied):
        gate.open_socket(info(PUBLIC, 80))
    with pytest.raises(EgressDenied):
        await gate.resolve("site.example.com", 80)


async def test_a_denial_comes_out_whatever_it_was_wrapped_in():
    gate = checked_gate()

    def swallow() -> None:
        with contextlib.suppress(EgressDenied):
            gate.open_socket(info("1.1.1.2", 80))
        raise IndexError("all attempts failed")

    with pytest.raises(EgressDenied), choose_connect_target(parse_url("http://1.1.1.1/"), POLICY):
        swallow()


async def test_a_connection_that_leads_elsewhere_is_noticed():
    gate = Gate(FakeResolver({}))
    target = choose_connect_target(
        parse_url("http://127.0.0.2/"), EgressPolicy.from_text("127.0.0.2:80")
    )

    def connect() -> None:
        with target, gate.open_socket(info("127.0.0.2", 80)):
            admits_peer(("127.0.0.1", 80))

    with pytest.raises(EgressDenied):
        connect()


class Strangers(EgressPolicy):
    """A policy that opens loopback for a test without treating it as the operator's own."""

    def is_own(self, address: WebAddress) -> bool:
        return False


@pytest.mark.slow
async def test_names_of_strangers_are_paced_by_their_address(make_client: MakeClient):
    async with PathServer({"/": whole_answer(b"x")}) as server:
        names = [f"n{number}.example.com" for number in range(4)]
        resolver = FakeResolver(dict.fromkeys(names, ("127.0.0.1",)))
        policy = Strangers.from_text(",".join(f"{name}:{server.port}" for name in names))
        politeness = Politeness(0.4, 2)
        moments: list[float] = []
        async with HttpClient(
            policy, politeness, user_agent="x", limits=QUICK, resolver=resolver
        ) as client:

            async def fetch(name: str) -> None:
                async with client.get(parse_url(server.url(host=name))):
                    moments.append(time.monotonic())

            await asyncio.gather(*map(fetch, names))
    assert moments[-1] - moments[0] > 0.29
    assert sorted(resolver.asked) == names


async def test_a_request_connects_only_to_what_its_place_was_taken_for():
    resolver = FakeResolver({"site.example.com": [(PUBLIC,), ("93.184.215.15",)]})
    gate = Gate(resolver)
    address = parse_url("http://site.example.com/")
    ips = await gate.look_up(address, POLICY, UNCACHED)
    with choose_connect_target(address, POLICY, UNCACHED, ips=ips):
        assert [found["host"] for found in await gate.resolve(address.host, 80)] == [PUBLIC]
    assert resolver.asked == ["site.example.com"]


async def test_every_record_is_checked_and_the_first_few_are_used():
    many = tuple(f"93.184.215.{number}" for number in range(1, 20))
    resolver = FakeResolver({"many.example.com": many, "bad.example.com": (*many, "10.0.0.1")})
    gate = Gate(resolver)
    assert (
        await gate.look_up(parse_url("http://many.example.com/"), POLICY, UNCACHED)
        == many[:MAX_ADDRESSES]
    )
    with pytest.raises(EgressDenied):
        await gate.look_up(parse_url("http://bad.example.com/"), POLICY, UNCACHED)
