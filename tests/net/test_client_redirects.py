"""Redirects are followed by hand, a few of them, each judged like an address that was typed."""

from __future__ import annotations

import pytest

from siteatlas.errors import (
    EgressDenied,
    RedirectInvalid,
    RedirectLoop,
    RedirectScheme,
    TooManyRedirects,
)
from siteatlas.net.address import parse_url
from siteatlas.net.client import HttpClient, Politeness
from siteatlas.net.egress import EgressPolicy
from tests.fixtures.raw_server import Connection, PathServer, RawServer, redirect, whole_answer
from tests.net.conftest import QUICK, MakeClient, ask, read


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_every_kind_of_redirect_is_followed(make_client: MakeClient, status: int):
    answers = {"/a": redirect("b?c", status=f"{status} Moved"), "/b?c": whole_answer(b"here")}
    async with (
        PathServer(dict(answers)) as server,
        make_client(server.entry) as client,
        client.get(parse_url(server.url("/a"))) as response,
    ):
        assert await read(response) == b"here"
        assert response.requested.path == "/a"
        assert response.address.path == "/b?c"
        assert response.hops == (server.url("/a"),)


async def test_a_redirect_without_a_location_is_returned(make_client: MakeClient):
    answer = whole_answer(status="302 Found")
    async with (
        PathServer({"/": answer}) as server,
        make_client(server.entry) as client,
        client.get(parse_url(server.url())) as response,
    ):
        assert response.status == 302
        assert response.error() is not None


async def test_a_refresh_header_is_ignored(make_client: MakeClient):
    answer = whole_answer(headers=("Refresh: 0; url=/b",))
    async with (
        PathServer({"/": answer}) as server,
        make_client(server.entry) as client,
        client.get(parse_url(server.url())) as response,
    ):
        assert response.status == 200
    assert server.paths == ["/"]


async def test_five_redirects_are_followed_and_six_are_not(make_client: MakeClient):
    answers = {f"/{n}": redirect(f"/{n + 1}") for n in range(6)} | {"/6": whole_answer(b"end")}
    async with PathServer(dict(answers)) as server, make_client(server.entry) as client:
        async with client.get(parse_url(server.url("/1"))) as response:
            assert await read(response) == b"end"
        with pytest.raises(TooManyRedirects):
            await ask(client.get(parse_url(server.url("/0"))))


@pytest.mark.parametrize("last", ["/a", "/b", "/x/../a#fragment"])
async def test_a_circle_is_noticed_at_the_first_repeat(make_client: MakeClient, last: str):
    answers = {"/a": redirect("/b"), "/b": redirect(last)}
    async with PathServer(dict(answers)) as server, make_client(server.entry) as client:
        with pytest.raises(RedirectLoop):
            await ask(client.get(parse_url(server.url("/a"))))
    assert server.paths == ["/a", "/b"]


@pytest.mark.parametrize(
    ("location", "error"),
    [
        ("http://127.0.0.1/", EgressDenied),
        ("http://169.254.169.254/latest/", EgressDenied),
        ("//10.0.0.1/x", EgressDenied),
        ("http://127.0.0.1:22/", EgressDenied),
        ("http://localhost/", EgressDenied),
        ("http://[::ffff:127.0.0.1]/", EgressDenied),
        ("file:///etc/passwd", RedirectScheme),
        ("javascript:alert(1)", RedirectScheme),
        ("\\\\10.0.0.1\\x", RedirectInvalid),
        ("http://127.1/", RedirectInvalid),
        ("http://user:pw@example.com/", RedirectInvalid),
        ("http:///x", RedirectInvalid),
        ("", RedirectInvalid),
        ("/" + "a" * 3000, RedirectInvalid),
    ],
)
async def test_a_redirect_is_judged_like_a_typed_address(
    make_client: MakeClient, location: str, error: type[Exception]
):
    async with PathServer({"/": redirect(location)}) as server:
        async with make_client(server.entry) as client:
            with pytest.raises(error):
                await ask(client.get(parse_url(server.url())))
        assert len(server.requests) == 1


async def test_the_body_of_a_redirect_is_not_read(make_client: MakeClient):
    sent = 0

    async def flood(connection: Connection) -> None:
        nonlocal sent
        if "/end" in (await connection.request() or ""):
            await connection.answer(b"end")
            return
        await connection.send(b"HTTP/1.1 302 Found\r\nLocation: /end\r\n\r\n")
        for _ in range(1000):
            await connection.send(b"x" * 65536)
            sent += 65536

    async with (
        RawServer(flood) as server,
        make_client(server.entry) as client,
        client.get(parse_url(server.url())) as response,
    ):
        assert await read(response) == b"end"
    assert sent < 20_000_000


async def test_the_default_policy_refuses_loopback_metadata_and_the_test_server(
    make_client: MakeClient,
):
    async with PathServer({"/": whole_answer()}) as server, make_client() as client:
        targets = ("http://127.0.0.1/", "http://169.254.169.254/", server.url())
        for target in targets:
            with pytest.raises(EgressDenied):
                await ask(client.get(parse_url(target)))
        assert server.connections == 0


async def test_a_site_cannot_lead_into_the_zone_of_another(make_client: MakeClient):
    async with (
        PathServer({"/": whole_answer()}, "127.0.0.2") as inside,
        PathServer({"/": redirect(inside.url())}) as site,
    ):
        address = parse_url(site.url())
        policy = EgressPolicy.from_text(f"{site.entry},{inside.entry}").for_site(address)
        client = HttpClient(policy, Politeness(0, 2), user_agent="test", limits=QUICK)
        async with client:
            with pytest.raises(EgressDenied):
                await ask(client.get(address))
    assert inside.connections == 0


async def test_two_different_locations_are_no_redirect(make_client: MakeClient):
    both = whole_answer(status="302 Found", headers=("Location: /a", "Location: /b"))
    async with PathServer({"/": both}) as server, make_client(server.entry) as client:
        with pytest.raises(RedirectInvalid):
            await ask(client.get(parse_url(server.url())))
        assert server.paths == ["/"]


async def test_the_same_location_twice_is_followed(make_client: MakeClient):
    both = whole_answer(status="302 Found", headers=("Location: /a", "Location: /a"))
    async with (
        PathServer({"/": both, "/a": whole_answer(b"here")}) as server,
        make_client(server.entry) as client,
        client.get(parse_url(server.url())) as response,
    ):
        assert await read(response) == b"here"
