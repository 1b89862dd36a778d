"""The page of access keys: who sees it, what it makes, and that a key is shown once."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI

from siteatlas.access.keys import Scope
from siteatlas.storage.models import ApiKey
from tests.fixtures.access import client_with, make_key
from tests.fixtures.pipeline import rows_of
from tests.fixtures.web_pages import WebPage
from tests.web.conftest import ACCEPT

pytestmark = pytest.mark.usefixtures("database")

NEW_KEY = {"name": "nightly export", "scope": ["read", "scan"], "user": "ann", "days": "90"}


@asynccontextmanager
async def logged_in(
    app: FastAPI, *scopes: Scope, user: str = "ann"
) -> AsyncIterator[httpx.AsyncClient]:
    """A browser with a session of this user."""
    async with client_with(app) as browser:
        browser.headers.update(ACCEPT)
        await browser.post("/login", data={"key": await make_key(*scopes, user=user)})
        yield browser


async def test_a_new_key_is_shown_once_and_works(app: FastAPI):
    async with logged_in(app, Scope.ADMIN) as browser:
        answer = await browser.post("/keys", data=NEW_KEY)
        (text,) = WebPage(answer).find("//code[@id='new-key']/text()")
        assert answer.headers["cache-control"] == "no-store"
        listed = await browser.get("/keys")
    assert "nightly export" in WebPage(listed).words()
    assert text not in listed.text
    async with client_with(app, text) as program:
        assert (await program.get("/api/v3/jobs")).status_code == 200
        assert (await program.get("/api/v3/keys")).status_code == 403


async def test_the_first_key_closes_the_installation_at_once(
    client: httpx.AsyncClient, app: FastAPI
):
    warned = WebPage(await client.get("/keys"))
    assert "closes this installation" in warned.words()
    made = await client.post("/keys", data={"name": "mine", "scope": "admin"})
    (text,) = WebPage(made).find("//code[@id='new-key']/text()")
    assert (await client.get("/api/v3/jobs")).status_code == 401
    async with client_with(app) as browser:
        await browser.post("/login", data={"key": text})
        assert (await browser.get("/keys")).status_code == 200


async def test_a_key_is_revoked_after_a_question_stays_in_the_list_and_its_session_ends(
    app: FastAPI,
):
    async with (
        logged_in(app, Scope.ADMIN) as browser,
        logged_in(app, Scope.READ, user="ben") as other,
    ):
        assert (await other.get("/jobs")).status_code == 200
        (stored,) = [key for key in await rows_of(ApiKey) if key.name == "key of ben"]
        asked = WebPage(await browser.post(f"/keys/{stored.id}/revoke"))
        assert "Revoke the key key of ben?" in asked.words()
        assert (await other.get("/jobs")).status_code == 200
        answer = await asked.confirm(browser)
        assert (answer.status_code, answer.headers["location"]) == (303, "/keys")
        assert (await other.get("/jobs")).status_code == 401
        page = WebPage(await browser.get("/keys"))
    assert "revoked" in page.words(f"//tr[@id='key-{stored.id}']")
    assert page.find(f"//tr[@id='key-{stored.id}']//form") == []


@pytest.mark.parametrize("scope", [Scope.READ, Scope.SCAN])
async def test_only_an_administrator_sees_keys(app: FastAPI, scope: Scope):
    async with logged_in(app, scope, Scope.READ) as browser:
        refused = [
            await browser.get("/keys"),
            await browser.post("/keys", data=NEW_KEY),
            await browser.post("/keys/abcdefgh/revoke"),
        ]
        page = WebPage(await browser.get("/"))
    assert [answer.status_code for answer in refused] == [403, 403, 403]
    assert page.find("//nav[@aria-label='Main']//a[@href='/keys']") == []
    assert len(await rows_of(ApiKey)) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "", "scope": "read"},
        {"name": "x", "scope": "everything"},
        {"name": "x"},
        {"name": "x", "scope": "read", "days": "0"},
        {"name": "x", "scope": "read", "days": "1.5"},
        {"name": "x", "scope": "read", "days": "nan"},
        {"name": "x", "scope": "read", "days": "9" * 400},
    ],
)
async def test_a_key_that_cannot_be_made_is_refused(
    client: httpx.AsyncClient, fields: dict[str, str]
):
    answer = await client.post("/keys", data=fields)
    assert answer.status_code == 422
    assert await rows_of(ApiKey) == []


async def test_the_frame_says_who_is_logged_in_and_leads_to_the_sessions(app: FastAPI):
    async with logged_in(app, Scope.READ) as browser:
        page = WebPage(await browser.get("/"))
    menu = "//details[@class='menu']"
    assert re.search(r"Logged in as\s+ann", page.words(menu))
    assert page.find(f"{menu}//form/@action") == ["/logout"]
    assert page.find(f"{menu}//a/@href") == ["/sessions"]
    assert page.find("//header//a[@data-scan]") == []


async def test_in_local_mode_nobody_logs_out(client: httpx.AsyncClient):
    page = WebPage(await client.get("/"))
    assert "Local user" in page.words("//details[@class='menu']")
    assert page.find("//form[@action='/logout']") == []
