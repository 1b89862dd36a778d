"""Event streams: how many a user and a service have, and when access ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import func, update

from siteatlas.access.keys import Scope
from siteatlas.access.limits import WAITING_PER_USER
from siteatlas.storage.models import BrowserSession
from siteatlas.storage.session import Database
from siteatlas.web import live
from tests.fixtures.access import application, client_with, expire, make_key, revoke
from tests.fixtures.database import transaction
from tests.fixtures.event_streams import EventStream, event_streams, with_cookie, with_key
from tests.fixtures.waiting import wait_until

COOKIE = "siteatlas_session"
EndAccess = Callable[[FastAPI, str, str], Awaitable[None]]


async def log_in(app: FastAPI, key: str) -> str:
    """The token of a new session."""
    async with client_with(app) as browser:
        await browser.post("/login", data={"key": key})
        return browser.cookies[COOKIE]


def statuses(streams: list[EventStream]) -> list[int]:
    return [stream.status for stream in streams]


async def test_all_sessions_and_keys_of_a_user_share_their_event_streams(database: Database):
    app = application(database)
    key, other = await make_key(Scope.READ), await make_key(Scope.READ)
    bob = await make_key(Scope.READ, user="bob")
    per_session = WAITING_PER_USER // 2
    async with (
        event_streams(app, per_session, with_cookie(await log_in(app, key))) as first,
        event_streams(app, per_session, with_cookie(await log_in(app, key))) as second,
        event_streams(app, 1, with_cookie(await log_in(app, key))) as third,
        event_streams(app, 1, with_key(other)) as fourth,
        event_streams(app, 1, with_key(bob)) as of_bob,
    ):
        assert set(statuses(first + second)) == {200}
        assert statuses(third + fourth) == [429, 429]
        assert b"too_many_streams" in third[0].content
        assert statuses(of_bob) == [200]
    async with event_streams(app, 1, with_key(key)) as later:
        assert statuses(later) == [200]


async def test_event_streams_leave_most_connections_to_others(database: Database):
    app = application(database, max_connections=20)
    users = [await make_key(Scope.READ, user=name) for name in ("ann", "bob", "cid")]
    async with (
        event_streams(app, 3, with_key(users[0])) as of_ann,
        event_streams(app, 3, with_key(users[1])) as of_bob,
        event_streams(app, 1, with_key(users[2])) as of_cid,
    ):
        assert statuses(of_ann) == [200, 200, 429]
        assert statuses(of_bob) == [200, 200, 429]
        assert statuses(of_cid) == [429]
        assert b"hello" not in of_cid[0].content


async def test_the_local_user_has_all_event_streams(app: FastAPI):
    async with event_streams(app, WAITING_PER_USER + 5) as streams:
        assert set(statuses(streams)) == {200}


async def end_key(app: FastAPI, key: str, _token: str) -> None:
    await revoke(key)


async def expire_key(app: FastAPI, key: str, _token: str) -> None:
    await expire(key)


async def log_out(app: FastAPI, _key: str, token: str) -> None:
    async with client_with(app) as browser:
        await browser.post("/logout", headers={"Cookie": f"{COOKIE}={token}"})


async def end_session(app: FastAPI, _key: str, _token: str) -> None:
    async with transaction() as session:
        await session.execute(update(BrowserSession).values(expires_at=func.now()))


@pytest.mark.parametrize("end", [end_key, expire_key, log_out, end_session])
async def test_an_event_stream_ends_with_the_access_of_its_reader(
    database: Database, monkeypatch: pytest.MonkeyPatch, end: EndAccess
):
    monkeypatch.setattr(live, "KEEP_ALIVE_SECONDS", 0.05)
    app = application(database)
    key, bob = await make_key(Scope.READ), await make_key(Scope.READ, user="bob")
    token = await log_in(app, key)
    async with (
        event_streams(app, 1, with_cookie(token)) as (stream,),
        event_streams(app, 1, with_key(bob)) as (other,),
    ):
        await wait_until(lambda: stream.content.count(b"still here") > 1)
        await end(app, key, token)
        await wait_until(lambda: stream.has_ended, seconds=2)
        assert not other.has_ended


async def test_an_event_stream_with_a_key_ends_when_the_key_is_revoked(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(live, "KEEP_ALIVE_SECONDS", 0.05)
    app = application(database)
    key = await make_key(Scope.READ)
    async with event_streams(app, 1, with_key(key)) as (stream,):
        await asyncio.sleep(0.2)
        assert not stream.has_ended
        await revoke(key)
        await wait_until(lambda: stream.has_ended, seconds=2)


async def test_a_local_event_stream_ends_when_the_first_key_is_made(
    app: FastAPI, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(live, "KEEP_ALIVE_SECONDS", 0.05)
    async with event_streams(app, 1) as (stream,):
        await asyncio.sleep(0.2)
        assert not stream.has_ended
        await make_key(Scope.READ)
        await wait_until(lambda: stream.has_ended, seconds=3)
