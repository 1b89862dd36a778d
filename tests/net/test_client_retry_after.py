"""Sites that ask us to wait: short waits are sat out, long ones are left to the caller."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from siteatlas.errors import RateLimited
from siteatlas.net.address import parse_url
from siteatlas.net.client import Politeness
from tests.fixtures.raw_server import PathServer, whole_answer
from tests.net.conftest import QUICK, MakeClient, ask, read

SITE = parse_url("http://example.com/")


def refusing(retry_after: str | None, status: str = "429 Too Many Requests") -> bytes:
    headers = (f"Retry-After: {retry_after}",) if retry_after is not None else ()
    return whole_answer(status=status, headers=headers)


@pytest.mark.slow
@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
@pytest.mark.parametrize("retry_after", ["0", "-5", "1", None])
async def test_a_short_wait_is_sat_out(make_client: MakeClient, status: str, retry_after):
    answers: dict[str, bytes | list[bytes]] = {
        "/": [refusing(retry_after, status), whole_answer(b"here")]
    }
    started = time.monotonic()
    async with (
        PathServer(answers) as server,
        make_client(server.entry) as client,
        client.get(parse_url(server.url())) as response,
    ):
        assert await read(response) == b"here"
    assert (time.monotonic() - started >= 0.95) is (retry_after == "1")


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        ("120", 120),
        ("315360000", 3600),
        ("Thu, 01 Jan 2099 12:00:00 GMT", 3600),
    ],
)
async def test_a_long_wait_is_reported_and_not_waited_for(
    make_client: MakeClient, status: str, retry_after: str, seconds: float
):
    async with PathServer({"/": refusing(retry_after, status)}) as server:
        async with (
            make_client(server.entry) as client,
            client.get(parse_url(server.url())) as response,
        ):
            error = response.error()
        assert isinstance(error, RateLimited)
        assert error.retry_after == seconds
        assert len(server.requests) == 1


async def test_a_host_that_asked_for_a_long_pause_is_not_asked_again(make_client: MakeClient):
    answers: dict[str, bytes | list[bytes]] = {"/a": refusing("600"), "/b": whole_answer()}
    async with PathServer(answers) as server, make_client(server.entry) as client:
        await ask(client.get(parse_url(server.url("/a"))))
        with pytest.raises(RateLimited) as caught:
            await ask(client.get(parse_url(server.url("/b"))))
        assert caught.value.retry_after == pytest.approx(600, abs=5)
        assert server.paths == ["/a"]


async def test_one_document_that_is_not_ready_does_not_stop_the_others(make_client: MakeClient):
    answers: dict[str, bytes | list[bytes]] = {
        "/a": refusing("600", "503 Service Unavailable"),
        "/b": whole_answer(b"x"),
    }
    async with PathServer(answers) as server, make_client(server.entry) as client:
        await ask(client.get(parse_url(server.url("/a"))))
        async with client.get(parse_url(server.url("/b"))) as response:
            assert await read(response) == b"x"


async def test_the_third_refusal_is_the_last(make_client: MakeClient):
    async with PathServer({"/": refusing("0")}) as server:
        async with make_client(server.entry, limits=replace(QUICK, tries=3)) as client:
            response = await ask(client.get(parse_url(server.url())))
        assert response.status == 429
        assert len(server.requests) == 3


async def test_a_pause_that_is_over_is_forgotten():
    politeness = Politeness(0, 2)
    politeness.pause(SITE, 0.05)
    started = time.monotonic()
    async with politeness.slot(SITE):
        assert time.monotonic() - started > 0.04
    async with politeness.slot(SITE, max_retry_after=0):
        pass


async def test_a_longer_pause_wins_over_a_shorter_one():
    politeness = Politeness(0, 2)
    politeness.pause(SITE, 100)
    politeness.pause(SITE, 1)
    with pytest.raises(RateLimited):
        async with politeness.slot(SITE):
            pass
    assert politeness._host(SITE, own=False).users == 0
