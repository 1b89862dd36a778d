"""The page of one's own sessions: what it shows, and that one ends one's own only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import func, update

from siteatlas.access.keys import Scope
from siteatlas.storage.models import AuditEvent, BrowserSession
from siteatlas.storage.session import get_session
from tests.fixtures.access import client_with, key_id, make_key
from tests.fixtures.pipeline import rows_of
from tests.fixtures.web_pages import WebPage
from tests.web.conftest import ACCEPT

pytestmark = pytest.mark.usefixtures("database")

ROWS = "//tr[starts-with(@id, 'session-')]"


@asynccontextmanager
async def logged_in(app: FastAPI, key: str) -> AsyncIterator[httpx.AsyncClient]:
    """A browser with a session of this key."""
    async with client_with(app) as browser:
        browser.headers.update(ACCEPT)
        await browser.post("/login", data={"key": key})
        yield browser


async def sessions_of(browser: httpx.AsyncClient) -> WebPage:
    answer = await browser.get("/sessions")
    assert answer.status_code == 200, answer.text
    return WebPage(answer)


async def test_a_person_sees_own_sessions_of_all_keys_and_which_is_this_one(app: FastAPI):
    first, second = await make_key(Scope.READ), await make_key(Scope.ADMIN)
    other = await make_key(Scope.ADMIN, user="bob")
    async with (
        logged_in(app, first) as one,
        logged_in(app, second) as two,
        logged_in(app, other) as bob,
    ):
        page = await sessions_of(one)
        shown = {row.xpath("string(td[1])"): row for row in page.find(ROWS)}
        assert len(shown) == 2
        this = shown["this one"].text_content()
        assert key_id(first) in this
        assert len(shown["this one"].xpath(".//time")) == 3
        assert key_id(second) in page.words("//main")
        assert key_id(other) not in page.text
        assert len((await sessions_of(two)).find(ROWS)) == 2
        assert len((await sessions_of(bob)).find(ROWS)) == 1


async def test_a_person_ends_one_of_own_sessions_and_stays_logged_in(app: FastAPI):
    key = await make_key(Scope.READ)
    async with logged_in(app, key) as one, logged_in(app, key) as two:
        (ident,) = (await sessions_of(one)).find(f"{ROWS}//input[@name='session']/@value")
        answer = await one.post("/logout", data={"session": ident})
        assert answer.headers["location"] == f"/sessions?ended={ident}"
        page = WebPage(await one.get(answer.headers["location"]))
        assert "The session was ended." in page.words()
        assert len(page.find(ROWS)) == 1
        assert (await two.get("/jobs")).status_code == 401
    recorded = (await rows_of(AuditEvent))[-1]
    assert (recorded.action, recorded.user_name) == ("log_out", "ann")
    assert recorded.target == f"/sessions?ended={ident}"


async def test_nobody_ends_the_session_of_another_user(app: FastAPI):
    async with (
        logged_in(app, await make_key(Scope.ADMIN)) as ann,
        logged_in(app, await make_key(Scope.READ, user="bob")) as bob,
    ):
        own = (await sessions_of(bob)).find(f"{ROWS}/@id")
        for text in (own[0].removeprefix("session-"), "junk", "\x00", ""):
            answer = await ann.post("/logout", data={"session": text})
            assert (answer.status_code, answer.headers["location"]) in {
                (303, "/sessions"),
                (303, "/login"),
            }
        assert (await sessions_of(bob)).find(f"{ROWS}/@id") == own


async def test_a_person_logs_out_everywhere_after_a_question_which_is_recorded(app: FastAPI):
    key = await make_key(Scope.READ)
    async with logged_in(app, key) as one, logged_in(app, await make_key(Scope.READ)) as two:
        form = "//form[.//input[@name='all']]"
        assert (await sessions_of(one)).find(f"{form}/@action") == ["/logout"]
        answer = await one.post("/logout", data={"all": "1"})
        asked = WebPage(await one.get(answer.headers["location"]))
        assert "Log out everywhere?" in asked.words()
        assert (await two.get("/jobs")).status_code == 200
        answer = await asked.confirm(one)
        assert "logged out everywhere" in WebPage(await one.get(answer.headers["location"])).text
        assert (await two.get("/jobs")).status_code == 401
    assert await rows_of(BrowserSession) == []
    assert (await rows_of(AuditEvent))[-1].target == "/login?ended=all"


async def test_a_session_that_was_idle_too_long_is_not_listed(app: FastAPI):
    key = await make_key(Scope.READ)
    async with logged_in(app, key), logged_in(app, key) as browser:
        (other,) = (await sessions_of(browser)).find(f"{ROWS}//input[@name='session']/@value")
        async with get_session() as session, session.begin():
            idle = func.now() - timedelta(hours=12, seconds=1)
            chosen = update(BrowserSession).where(BrowserSession.id == UUID(other))
            await session.execute(chosen.values(last_used_at=idle))
        assert len((await sessions_of(browser)).find(ROWS)) == 1


async def test_in_local_mode_there_are_no_sessions(client: httpx.AsyncClient):
    page = await sessions_of(client)
    assert "In local mode nobody logs in" in page.words()
    assert page.find("//form[@action='/logout']") == []


async def test_a_program_with_a_key_is_told_that_it_has_no_session(app: FastAPI):
    async with client_with(app, await make_key(Scope.READ)) as program:
        page = await sessions_of(program)
    assert "requested with an access key" in page.words()
