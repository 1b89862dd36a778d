"""Routes of webhooks: what they accept, what they show, and what they refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from siteatlas.access.keys import Scope
from siteatlas.main import create_app
from siteatlas.notify import endpoints
from siteatlas.settings import Settings
from siteatlas.storage.session import Database
from tests.fixtures.access import client_with, make_key
from tests.fixtures.changes import add_published_scan
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain
from tests.fixtures.webhooks import Receiver, deliver_all, dispatcher_for

ROUTE = "/api/v3/webhooks"
RECEIVER = "https://hooks.example.com/siteatlas"
SOME_ID = "0d4f5cbb-6c5c-4b8e-9c0f-5d6a4f3a2b11"
Json = dict[str, Any]


async def created(client: httpx.AsyncClient, **body: Any) -> Json:
    response = await client.post(ROUTE, json={"url": RECEIVER} | body)
    assert response.status_code == 201, response.text
    assert response.headers["location"] == f"{ROUTE}/{response.json()['id']}"
    found: Json = response.json()
    return found


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as running:
        yield running


@pytest_asyncio.fixture
async def reaching_client(
    database: Database, receiver: Receiver
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application that may contact the receiver."""
    settings = Settings(egress_allow=receiver.host_port)
    async with client_with(create_app(settings, run_scheduler=False, database=database)) as opened:
        yield opened


async def test_the_secret_is_shown_once(client: httpx.AsyncClient):
    webhook = await created(client)
    assert webhook["secret"].startswith("whsec_")
    listed = await client.get(ROUTE)
    one = await client.get(f"{ROUTE}/{webhook['id']}")
    assert "whsec_" not in listed.text + one.text
    assert listed.json()["items"] == [one.json()]
    del webhook["secret"]
    assert one.json() == webhook


async def test_a_webhook_is_about_all_types_and_all_sites_unless_it_names_some(
    client: httpx.AsyncClient,
):
    plain = await created(client)
    kinds = ["scan.published", "scan.failed", "removals.held", "robots.changed"]
    kinds += ["findings.new", "findings.resolved"]
    assert (plain["types"], plain["domains"]) == (kinds, None)
    narrow = await created(
        client,
        types=["scan.failed", "scan.published", "scan.failed"],
        domains=["https://www.b.example/", "a.example", "b.example"],
        description=" search index ",
    )
    assert narrow["types"] == ["scan.published", "scan.failed"]
    assert narrow["domains"] == ["a.example", "b.example"]
    assert narrow["description"] == "search index"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"url": "http://127.0.0.1:9/hook"}, "egress_denied"),
        ({"url": "https://hooks.example.com:9000/"}, "egress_denied"),
        ({"url": "https://ann:secret@hooks.example.com/"}, "address_credentials"),
        ({"url": "ftp://hooks.example.com/"}, "address_scheme"),
        ({"url": "hooks"}, "address_invalid"),
        ({"types": []}, "input_invalid"),
        ({"types": ["webhook.test"]}, "input_invalid"),
        ({"types": ["scan_failed"]}, "input_invalid"),
        ({"domains": []}, "input_invalid"),
        ({"domains": ["not a site"]}, "address_invalid"),
        ({"description": "x" * 201}, "input_invalid"),
        ({"description": "a\nb"}, "input_invalid"),
        ({"secret": "whsec_mine"}, "input_invalid"),
    ],
)
async def test_what_a_webhook_cannot_be_is_refused(
    client: httpx.AsyncClient, body: Json, code: str
):
    response = await client.post(ROUTE, json={"url": RECEIVER} | body)
    assert (response.status_code, response.json()["code"]) == (422, code)
    webhook = await created(client)
    response = await client.patch(f"{ROUTE}/{webhook['id']}", json=body)
    assert (response.status_code, response.json()["code"]) == (422, code)


async def test_a_change_sets_only_what_it_names(client: httpx.AsyncClient):
    webhook = await created(client, domains=["a.example"], description="first")
    route = f"{ROUTE}/{webhook['id']}"
    response = await client.patch(route, json={"types": ["scan.failed"], "enabled": False})
    changed = response.json()
    assert (changed["types"], changed["status"]) == (["scan.failed"], "disabled")
    assert changed["disabled_reason"] == "requested"
    assert (changed["domains"], changed["description"]) == (["a.example"], "first")
    response = await client.patch(route, json={"domains": None, "enabled": True})
    again = response.json()
    assert (again["domains"], again["status"]) == (None, "active")
    assert (again["disabled_at"], again["disabled_reason"]) == (None, None)
    response = await client.patch(route, json={"url": None})
    assert response.status_code == 422


async def test_a_deleted_webhook_is_unknown_to_all_routes(client: httpx.AsyncClient):
    webhook = await created(client)
    route = f"{ROUTE}/{webhook['id']}"
    assert (await client.delete(route)).status_code == 204
    answers = [
        await client.get(route),
        await client.patch(route, json={"enabled": True}),
        await client.delete(route),
        await client.get(f"{route}/deliveries"),
        await client.post(f"{route}/test"),
        await client.post(f"{route}/rotate-secret"),
        await client.post(f"{route}/replay?after_seq=0"),
    ]
    found = {(answer.status_code, answer.json()["code"]) for answer in answers}
    assert found == {(404, "webhook_not_found")}


async def test_a_test_message_returns_what_the_receiver_answered(
    reaching_client: httpx.AsyncClient, receiver: Receiver
):
    webhook = await created(reaching_client, url=receiver.url)
    receiver.secrets = [webhook["secret"]]
    route = f"{ROUTE}/{webhook['id']}"
    accepted = (await reaching_client.post(f"{route}/test")).json()
    assert (accepted["delivered"], accepted["http_status"]) == (True, 204)
    receiver.answer = 500
    refused = (await reaching_client.post(f"{route}/test")).json()
    assert (refused["delivered"], refused["http_status"]) == (False, 500)
    entries = (await reaching_client.get(f"{route}/deliveries")).json()["items"]
    assert [entry["message_id"] for entry in entries] == [
        refused["message_id"],
        accepted["message_id"],
    ]
    failed = (await reaching_client.get(f"{route}/deliveries?delivered=false&limit=1")).json()
    assert [entry["http_status"] for entry in failed["items"]] == [500]
    assert failed["next_cursor"] is None


async def test_a_rotated_secret_is_shown_once_and_the_old_one_stays_valid(
    reaching_client: httpx.AsyncClient, receiver: Receiver
):
    webhook = await created(reaching_client, url=receiver.url)
    route = f"{ROUTE}/{webhook['id']}"
    secret = (await reaching_client.post(f"{route}/rotate-secret")).json()["secret"]
    assert secret != webhook["secret"]
    receiver.secrets = [webhook["secret"], secret]
    assert (await reaching_client.post(f"{route}/test")).json()["delivered"] is True
    assert (await reaching_client.get(route)).json()["previous_secret_until"] is not None


async def test_a_replay_starts_behind_the_number_that_it_names(
    reaching_client: httpx.AsyncClient, receiver: Receiver
):
    webhook = await created(reaching_client, url=receiver.url)
    receiver.secrets = [webhook["secret"]]
    async with transaction() as session:
        domain = await add_domain(session)
        for _ in range(3):
            await add_published_scan(session, domain)
    await deliver_all(dispatcher_for(receiver))
    route = f"{ROUTE}/{webhook['id']}"
    response = await reaching_client.post(f"{route}/replay?after_seq=1")
    assert (response.status_code, response.json()["delivered_seq"]) == (202, 1)
    await deliver_all(dispatcher_for(receiver))
    assert receiver.seqs == [1, 2, 3, 2, 3]
    response = await reaching_client.post(f"{route}/replay?since=2020-01-01T00:00:00Z")
    assert response.json()["delivered_seq"] == 0
    expired = await reaching_client.post(f"{route}/replay?after_seq=9")
    assert (expired.status_code, expired.json()["code"]) == (410, "cursor_expired")


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?after_seq=1&since=2020-01-01T00:00:00Z",
        "?after_seq=-1",
        "?since=yesterday",
        "?since=1577836800",
    ],
)
async def test_a_replay_needs_either_a_number_or_a_time(client: httpx.AsyncClient, query: str):
    webhook = await created(client)
    response = await client.post(f"{ROUTE}/{webhook['id']}/replay{query}")
    assert (response.status_code, response.json()["code"]) == (422, "input_invalid")


async def test_a_replay_takes_a_time_without_a_zone_as_utc(client: httpx.AsyncClient):
    webhook = await created(client)
    async with transaction() as session:
        domain = await add_domain(session)
        for hour in (10, 12):
            ended = datetime(2025, 11, 15, hour, tzinfo=UTC)
            await add_published_scan(session, domain, finished_at=ended)
    route = f"{ROUTE}/{webhook['id']}/replay"
    for since in ("2025-11-15T11:00:00", "2025-11-15T13:00:00%2B02:00"):
        response = await client.post(f"{route}?since={since}")
        assert (response.status_code, response.json()["delivered_seq"]) == (202, 1)


async def test_the_number_of_webhooks_is_limited(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(endpoints, "MAX_ENDPOINTS", 1)
    await created(client)
    response = await client.post(ROUTE, json={"url": RECEIVER})
    assert (response.status_code, response.json()["code"]) == (409, "too_many_webhooks")


async def test_readers_see_webhooks_and_cannot_change_them(app: FastAPI):
    admin, reader = await make_key(Scope.ADMIN), await make_key(Scope.READ, user="bob")
    async with client_with(app, admin) as client:
        webhook = await created(client)
    route = f"{ROUTE}/{webhook['id']}"
    async with client_with(app, reader) as client:
        assert (await client.get(route)).status_code == 200
        assert (await client.get(f"{route}/deliveries")).status_code == 200
        assert (await client.post(ROUTE, json={"url": RECEIVER})).status_code == 403
        assert (await client.patch(route, json={"enabled": False})).status_code == 403
        for action in ("test", "rotate-secret", "replay?after_seq=0"):
            assert (await client.post(f"{route}/{action}")).status_code == 403


async def test_metrics_count_webhooks_by_status(client: httpx.AsyncClient):
    await created(client)
    text = (await client.get("/metrics")).text
    assert 'siteatlas_webhooks{status="active"} 1.0' in text
    assert 'siteatlas_webhooks{status="disabled"} 0.0' in text
    assert "siteatlas_webhooks_behind 0.0" in text
    assert 'siteatlas_webhook_attempts_total{outcome="delivered"}' in text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (RECEIVER, "https://hooks.example.com/…"),
        ("https://hooks.example.com/?token=secret", "https://hooks.example.com/…"),
        ("https://hooks.example.com/", "https://hooks.example.com/"),
    ],
)
async def test_the_path_of_a_receiver_is_shown_to_nobody(
    client: httpx.AsyncClient, url: str, shown: str
):
    webhook = await created(client, url=url)
    route = f"{ROUTE}/{webhook['id']}"
    listed = (await client.get(ROUTE)).json()["items"]
    changed = await client.patch(route, json={"description": "ours"})
    one = await client.get(route)
    assert {webhook["url"], listed[0]["url"], one.json()["url"], changed.json()["url"]} == {shown}
    for page in ("/webhooks", f"/webhooks/{webhook['id']}"):
        text = (await client.get(page)).text
        assert "hooks.example.com" in text
        assert "/siteatlas" not in text.replace("/hooks/siteatlas", "")
