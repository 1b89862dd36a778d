"""Messages of webhooks: what each contains, who receives it, and how it is signed."""

from __future__ import annotations

from datetime import datetime

import orjson
import pytest
from sqlalchemy import func

from siteatlas.notify import endpoints
from siteatlas.notify.messages import MAX_BODY_BYTES
from siteatlas.storage.models import Domain
from tests.fixtures.changes import add_changes, add_event, add_published_scan
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_sitemap
from tests.fixtures.webhooks import (
    Receiver,
    add_endpoint,
    deliver_all,
    dispatcher_for,
    publish,
    set_endpoint,
    webhook_view,
)


async def test_each_published_scan_is_delivered_once_in_the_order_of_the_feed(
    receiver: Receiver, domain: Domain
):
    await publish(domain)
    created = await add_endpoint(receiver)
    numbers = [await publish(domain, change_counts={"added": n}) for n in range(3)]
    dispatcher = dispatcher_for(receiver)
    await deliver_all(dispatcher)
    await deliver_all(dispatcher)
    assert receiver.seqs == numbers
    assert [received.data["previous_seq"] for received in receiver.messages] == [1, 2, 3]
    assert receiver.messages[2].data["counts"] == {"added": 2}
    view = await webhook_view(created.id)
    assert (view.status, view.delivered_seq, view.head_seq) == ("active", 4, 4)


async def test_a_message_names_the_scan_its_counts_and_where_to_read_the_changes(
    receiver: Receiver, domain: Domain
):
    await add_endpoint(receiver)
    async with transaction() as session:
        sitemap = await add_sitemap(session, domain)
        scan = await add_published_scan(
            session, domain, url_count=7, change_counts={"added": 30}, finished_at=func.now()
        )
        await add_changes(session, scan, sitemap, range(30))
    await deliver_all(dispatcher_for(receiver))
    (received,) = receiver.messages
    assert received.type == "scan.published"
    assert datetime.fromisoformat(received.message["timestamp"]) == scan.finished_at
    data = received.data
    assert (data["domain"], data["scan_id"], data["url_count"]) == ("example.com", scan.id, 7)
    assert (data["from_seq"], data["to_seq"], data["previous_seq"]) == (1, 1, None)
    assert data["counts"] == {"added": 30}
    assert len(data["samples"]) == 20
    assert data["samples"][0]["kind"] == "added"
    assert data["samples"][0]["sitemap"] == sitemap.url
    url = "https://atlas.example/api/v3/domains/example.com/changes?after=0"
    assert data["changes_url"] == url


async def test_a_message_stays_below_20_kb_however_long_the_urls_are(
    receiver: Receiver, domain: Domain
):
    await add_endpoint(receiver)
    async with transaction() as session:
        sitemap = await add_sitemap(session, domain)
        scan = await add_published_scan(session, domain, change_counts={"added": 20})
        for n in range(20):
            url = f"https://example.com/{n}{'ü' * 2000}"
            await add_changes(session, scan, sitemap, [n], url=url)
        data = {"origin": "https://example.com", "diff": "\u0001ü" * 5000}
        await add_event(session, domain, "robots_changed", scan, data=data)
        documents = [{"sitemap": "x" * 5000, "reason": "cut"}] * 10
        held = {"count": 5, "documents": documents, "more_documents": 3}
        await add_event(session, domain, "removals_held", scan, data=held)
    await deliver_all(dispatcher_for(receiver))
    published, held_message, robots = receiver.messages
    assert max(len(received.body) for received in receiver.messages) < MAX_BODY_BYTES
    kinds = [sample["kind"] for sample in published.data["samples"]]
    assert kinds == ["added", "added", "added"]
    documents_shown = held_message.data["documents"]
    assert len(documents_shown) + held_message.data["more_documents"] == 13
    assert robots.data["files"][0]["diff_truncated"] is True


async def test_one_number_has_a_message_for_each_type_it_is_about(
    receiver: Receiver, domain: Domain
):
    await add_endpoint(receiver)
    async with transaction() as session:
        scan = await add_published_scan(session, domain)
        await add_event(session, domain, "removals_held", scan, data={"count": 5})
        for name in ("a", "b"):
            await add_event(session, domain, "robots_changed", scan, data={"origin": name})
        await add_event(session, domain, "baseline", scan)
        await add_event(session, domain, "scan_failed", data={"error_code": "no_sitemap"})
        await add_event(session, domain, "domain_forgotten")
    await deliver_all(dispatcher_for(receiver))
    assert [(received.type, received.seq) for received in receiver.messages] == [
        ("scan.published", 1),
        ("removals.held", 1),
        ("robots.changed", 1),
        ("scan.failed", 2),
    ]
    assert len({received.id for received in receiver.messages}) == 4
    _, held, robots, failed = receiver.messages
    assert held.data["held_count"] == 5
    assert [file["origin"] for file in robots.data["files"]] == ["a", "b"]
    assert (failed.data["error_code"], failed.data["previous_seq"]) == ("no_sitemap", 1)


async def test_findings_are_told_with_their_scan_and_later_with_a_number_of_their_own(
    receiver: Receiver, domain: Domain
):
    await add_endpoint(receiver, types=["findings.new", "findings.resolved"])
    data = {"code": "url-invalid", "severity": "error", "count": 3, "detail": "", "samples": [1]}
    async with transaction() as session:
        sitemap = await add_sitemap(session, domain)
        scan = await add_published_scan(session, domain)
        for kind in ("finding_new", "finding_resolved", "finding_new"):
            await add_event(session, domain, kind, scan, sitemap=sitemap.url, data=data)
        await add_event(session, domain, "finding_new", data={"code": "url-twins"})
    await deliver_all(dispatcher_for(receiver))
    assert [(received.type, received.seq) for received in receiver.messages] == [
        ("findings.new", 1),
        ("findings.resolved", 1),
        ("findings.new", 2),
    ]
    told, _, later = (received.data["findings"] for received in receiver.messages)
    about = {"code": "url-invalid", "severity": "error", "count": 3}
    assert told == [{"sitemap": sitemap.url} | about] * 2
    assert [one["code"] for one in later] == ["url-twins"]


async def test_an_endpoint_gets_only_its_types_and_its_sites(receiver: Receiver, domain: Domain):
    created = await add_endpoint(
        receiver, types=["robots.changed", "scan.failed"], domains=["https://www.example.com/"]
    )
    async with transaction() as session:
        other = await add_domain(session, "other.example")
        for site in (domain, other):
            scan = await add_published_scan(session, site)
            await add_event(session, site, "robots_changed", scan)
            await add_event(session, site, "removals_held", scan)
            await add_event(session, site, "scan_failed")
    await deliver_all(dispatcher_for(receiver))
    assert [(received.type, received.data["domain"]) for received in receiver.messages] == [
        ("robots.changed", "example.com"),
        ("scan.failed", "example.com"),
    ]
    assert (await webhook_view(created.id)).delivered_seq == 4


async def test_numbers_without_a_message_are_passed_in_steps(
    receiver: Receiver, domain: Domain, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("siteatlas.catalog.webhooks.MAX_NUMBERS", 2)
    created = await add_endpoint(receiver, types=["scan.failed"])
    for _ in range(7):
        await publish(domain)
    async with transaction() as session:
        await add_event(session, domain, "scan_failed")
    await deliver_all(dispatcher_for(receiver))
    assert receiver.seqs == [8]
    assert (await webhook_view(created.id)).delivered_seq == 8


async def test_several_events_of_one_number_hide_no_later_message(
    receiver: Receiver, domain: Domain, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("siteatlas.catalog.webhooks.MAX_PLACES", 2)
    await add_endpoint(receiver, types=["robots.changed", "scan.failed"])
    async with transaction() as session:
        for _ in range(2):
            scan = await add_published_scan(session, domain)
            for name in ("example.com", "www.example.com"):
                await add_event(session, domain, "robots_changed", scan, data={"origin": name})
        await add_event(session, domain, "scan_failed")
    await deliver_all(dispatcher_for(receiver))
    assert receiver.seqs == [1, 2, 3]


async def test_during_a_rotation_messages_have_the_signatures_of_both_secrets(
    receiver: Receiver, domain: Domain
):
    created = await add_endpoint(receiver)
    async with transaction() as session:
        secret = await endpoints.rotate_secret(session, created.id)
    receiver.secrets = [created.secret, secret]
    await publish(domain)
    dispatcher = dispatcher_for(receiver)
    await deliver_all(dispatcher)
    await set_endpoint(created.id, previous_secret_until=func.now())
    receiver.secrets = [secret]
    await publish(domain)
    await deliver_all(dispatcher)
    assert [received.signatures for received in receiver.messages] == [2, 1]


async def test_a_message_is_plain_json_in_utf_8(receiver: Receiver, domain: Domain):
    await add_endpoint(receiver)
    await publish(domain)
    await deliver_all(dispatcher_for(receiver))
    (received,) = receiver.messages
    assert receiver.requests[0].headers["content-type"] == "application/json"
    assert set(orjson.loads(received.body)) == {"type", "timestamp", "data"}
    assert "." not in received.id
