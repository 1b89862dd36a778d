"""The pages of webhooks: create one, see its secret once, test, disable and delete it."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI

from siteatlas.access.keys import Scope
from siteatlas.storage.models import WebhookDelivery, WebhookEndpoint
from siteatlas.storage.session import Database
from tests.fixtures.access import application, client_with, make_key
from tests.fixtures.pipeline import rows_of
from tests.fixtures.web_pages import WebPage

pytestmark = pytest.mark.usefixtures("database")

NEW = {"url": "https://example.com/hook", "type": ["scan.published"], "description": "our shop"}


async def test_a_new_webhook_shows_its_secret_once(client: httpx.AsyncClient):
    made = await client.post("/webhooks", data=NEW)
    (secret,) = WebPage(made).find("//code[@id='new-secret']/text()")
    (stored,) = await rows_of(WebhookEndpoint)
    assert (stored.types, stored.domains) == (["scan.published"], None)
    listed = await client.get("/webhooks")
    assert "our shop" in WebPage(listed).words()
    shown = await client.get(f"/webhooks/{stored.id}")
    assert "Nothing has been sent yet." in WebPage(shown).words()
    assert secret not in listed.text + shown.text


async def test_a_webhook_is_disabled_enabled_and_deleted_after_a_question(
    client: httpx.AsyncClient,
):
    await client.post("/webhooks", data=NEW | {"domains": "example.com\nexample.org"})
    (stored,) = await rows_of(WebhookEndpoint)
    base = f"/webhooks/{stored.id}"
    assert (await client.post(f"{base}/disable")).headers["location"] == base
    assert "is disabled" in WebPage(await client.get(base)).words()
    await client.post(f"{base}/enable")
    assert "is disabled" not in WebPage(await client.get(base)).words()
    asked = WebPage(await client.post(f"{base}/delete"))
    assert "Delete this webhook?" in asked.words()
    assert asked.find("//a[.='Cancel']/@href") == [base]
    assert len(await rows_of(WebhookEndpoint)) == 1
    assert (await asked.confirm(client)).headers["location"] == "/webhooks"
    assert await rows_of(WebhookEndpoint) == []


async def test_a_later_page_of_webhooks_updates_itself(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("siteatlas.web.pages.webhooks.ROWS", 1)
    for _ in range(2):
        await client.post("/webhooks", data=NEW)
    first = WebPage(await client.get("/webhooks"))
    (following,) = first.find("//a[contains(@href, '/webhooks?cursor=')]/@href")
    second = WebPage(await client.get(following))
    assert first.find("//*[@id='webhook-rows']/@hx-get") == ["/webhooks"]
    assert second.find("//*[@id='webhook-rows']/@hx-get") == [following]


async def test_a_test_message_that_cannot_be_sent_is_in_the_log(database: Database):
    nobody = "127.0.0.1:9"
    app = application(database, egress_allow=nobody)
    async with client_with(app) as client:
        await client.post("/webhooks", data=NEW | {"url": f"http://{nobody}/hook"})
        (stored,) = await rows_of(WebhookEndpoint)
        await client.post(f"/webhooks/{stored.id}/test")
        words = WebPage(await client.get(f"/webhooks/{stored.id}")).words("//tbody")
    (delivery,) = await rows_of(WebhookDelivery)
    assert "failed" in words
    assert str(delivery.error_code) in words


@pytest.mark.parametrize(
    "fields",
    [
        {"url": ""},
        {"url": "ftp://example.com"},
        {"url": "http://127.0.0.1/hook"},
        {"type": []},
        {"type": ["webhook.test"]},
        {"domains": "not a site://"},
    ],
)
async def test_a_webhook_that_cannot_be_made_is_refused(
    client: httpx.AsyncClient, fields: dict[str, str]
):
    answer = await client.post("/webhooks", data=NEW | fields)
    assert answer.status_code == 422
    assert await rows_of(WebhookEndpoint) == []


async def test_only_an_administrator_changes_webhooks(app: FastAPI):
    async with client_with(app, await make_key(Scope.READ, Scope.SCAN)) as reader:
        page = await reader.get("/webhooks")
        refused = await reader.post("/webhooks", data=NEW)
    assert (page.status_code, refused.status_code) == (200, 403)
    assert WebPage(page).find("//form[@action='/webhooks']") == []
