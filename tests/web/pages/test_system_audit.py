"""The page of the audit trail: who sees it, its order, its filter and its file."""

from __future__ import annotations

import csv

import httpx
import pytest
from fastapi import FastAPI

from siteatlas.access.keys import Scope
from siteatlas.catalog.access import insert_audit_event
from siteatlas.storage.session import get_session
from siteatlas.web.pages.system import ROWS
from tests.fixtures.access import client_with, make_key
from tests.fixtures.web_pages import WebPage
from tests.web.conftest import ACCEPT

pytestmark = pytest.mark.usefixtures("database")

ACTIONS = "//section[@aria-labelledby='list-title']//tbody/tr/td[1]/code/text()"


async def record_events(*events: tuple[str, str], **values: str) -> None:
    """Events of these users with these actions, the oldest first."""
    async with get_session() as session, session.begin():
        for user, action in events:
            await insert_audit_event(session, user_name=user, action=action, status=200, **values)


async def page_at(browser: httpx.AsyncClient, path: str) -> WebPage:
    answer = await browser.get(path)
    assert answer.status_code == 200, answer.text
    return WebPage(answer)


async def test_the_trail_is_shown_newest_first_with_who_did_what_and_the_result(app: FastAPI):
    ann, root = await make_key(Scope.SCAN, user="ann"), await make_key(Scope.ADMIN, user="root")
    async with client_with(app, ann, client=("192.0.2.7", 1)) as program:
        await program.post("/api/v3/sitemap/scan", json={"base_url": "example.com"})
        await program.post("/api/v3/keys", json={"name": "x", "scopes": ["admin"]})
    async with client_with(app, root) as admin:
        page = await page_at(admin, "/audit")
    assert page.find(ACTIONS) == ["post_key", "scan_domain"]
    refused, done = [row.text_content() for row in page.find("//tbody/tr")]
    assert "✕403 scope_missingann/api/v3/keys192.0.2.7" in refused
    assert "✓202ann" in done
    assert len(page.find("//tbody/tr[1]//time")) == 1


async def test_the_pages_of_the_trail_follow_each_other_without_gaps(client: httpx.AsyncClient):
    wanted = [f"action {number}" for number in range(2 * ROWS + 1)]
    await record_events(*(("ann", action) for action in wanted))
    shown, path = list[str](), "/audit?user=ann"
    while path:
        page = await page_at(client, path)
        shown += page.find(ACTIONS)
        path = "".join(page.find("//a[@rel='next']/@href"))
    assert shown == wanted[::-1]


async def test_the_trail_is_filtered_by_user_as_on_the_command_line(client: httpx.AsyncClient):
    await record_events(("ann", "one"), ("a&b", "two"))
    page = await page_at(client, "/audit")
    (href,) = page.find("//tbody//a[.='a&b']/@href")
    filtered = await page_at(client, href)
    assert filtered.find(ACTIONS) == ["two"]
    assert filtered.find("//input[@name='user']/@value") == ["a&b"]
    nobody = await page_at(client, "/audit?user=nobody")
    assert "No record of this user." in nobody.words()
    assert nobody.find("//main//a[@href='/audit']")


async def test_the_trail_is_exported_as_a_file_with_the_filter_of_the_page(
    client: httpx.AsyncClient,
):
    await record_events(("ann", "one"), ("ben", "two"), ("ann", "three"), target='=1+"1"')
    (href,) = (await page_at(client, "/audit?user=ann")).find("//a[.='Export CSV']/@href")
    answer = await client.get(href)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert "siteatlas-audit.csv" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(answer.text.splitlines()))
    assert [row["action"] for row in rows] == ["three", "one"]
    # A spreadsheet must not calculate it.
    assert rows[0]["target"] == '\'=1+"1"'
    assert rows[0]["created_at"].endswith("Z")
    everything = await client.get("/audit.csv")
    assert len(everything.text.splitlines()) == 4


async def test_in_local_mode_the_trail_says_that_requests_are_not_in_it(
    client: httpx.AsyncClient,
):
    page = await page_at(client, "/audit")
    assert "Requests in local mode are not recorded" in page.words()
    assert "Nothing has been recorded yet." in page.words()
    assert page.find("//a[.='Export CSV']") == []


@pytest.mark.parametrize("path", ["/audit", "/audit.csv", "/audit?user=ann"])
@pytest.mark.parametrize("scope", [Scope.READ, Scope.SCAN])
async def test_only_an_administrator_reads_the_trail(app: FastAPI, scope: Scope, path: str):
    async with client_with(app, await make_key(scope)) as program:
        assert (await program.get(path)).status_code == 403


@pytest.mark.parametrize("path", ["/keys", "/system"])
async def test_the_trail_is_linked_where_administrators_look(app: FastAPI, path: str):
    async with client_with(app, await make_key(Scope.ADMIN)) as admin:
        page = await page_at(admin, path)
        assert page.find("//main//a[@href='/audit']")
        assert page.find("//nav[@aria-label='Main']//a[@href='/audit']")
    async with client_with(app, await make_key(Scope.READ)) as reader:
        page = WebPage(await reader.get(path, headers=ACCEPT))
        assert page.find("//a[@href='/audit']") == []


@pytest.mark.parametrize("path", ["/audit?user=%00", "/audit?cursor=junk", "/audit.csv?user=%00"])
async def test_a_filter_that_nothing_can_match_is_refused(client: httpx.AsyncClient, path: str):
    assert (await client.get(path)).status_code in {400, 422}
