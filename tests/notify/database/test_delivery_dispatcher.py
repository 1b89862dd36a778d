"""Deliveries: their order, and what happens on failures, deaths, changes and replays."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, select, update

from siteatlas.catalog import webhooks as webhook_deliveries
from siteatlas.catalog.webhooks import claim_endpoints, prune_deliveries, record_delivered
from siteatlas.errors import CursorExpired, WebhookNotFound
from siteatlas.notify import endpoints
from siteatlas.notify.delivery import Dispatcher
from siteatlas.notify.messages import RETRY_DELAYS
from siteatlas.queue.metrics import pool_state
from siteatlas.settings import Settings
from siteatlas.storage.models import Domain, FeedHead, WebhookDelivery
from tests.fixtures.changes import add_published_scan
from tests.fixtures.database import transaction
from tests.fixtures.waiting import wait_until
from tests.fixtures.webhooks import (
    Receiver,
    add_endpoint,
    deliver_all,
    deliveries_of,
    dispatcher_for,
    publish,
    set_endpoint,
    webhook_view,
)


async def test_a_failed_message_is_tried_again_with_the_same_id_before_the_next_one(
    receiver: Receiver, domain: Domain
):
    created = await add_endpoint(receiver)
    numbers = [await publish(domain), await publish(domain)]
    receiver.answer = 500
    dispatcher = dispatcher_for(receiver)
    await deliver_all(dispatcher)
    await deliver_all(dispatcher)
    view = await webhook_view(created.id)
    assert (view.status, view.failures, view.delivered_seq) == ("failing", 1, 0)
    assert view.next_attempt_at is not None
    assert 4 < (view.next_attempt_at - datetime.now(UTC)).total_seconds() < 6
    receiver.answer = 200
    await set_endpoint(created.id, next_attempt_at=func.now())
    await deliver_all(dispatcher)
    assert receiver.seqs == numbers
    newest, second, first = await deliveries_of(created.id)
    assert (first.delivered, first.http_status, first.attempt) == (False, 500, 1)
    assert (second.delivered, second.http_status, second.attempt) == (True, 200, 2)
    assert first.message_id == second.message_id != newest.message_id
    assert (newest.attempt, newest.seq, newest.domain) == (1, 2, "example.com")


async def test_a_redirect_is_a_failure_and_is_not_followed(receiver: Receiver, domain: Domain):
    created = await add_endpoint(receiver)
    await publish(domain)
    receiver.answer, receiver.headers = 302, {"Location": "/elsewhere"}
    await deliver_all(dispatcher_for(receiver))
    assert receiver.paths == ["/hook"]
    assert [entry.http_status for entry in await deliveries_of(created.id)] == [302]


async def test_retry_after_makes_the_delay_longer(receiver: Receiver, domain: Domain):
    created = await add_endpoint(receiver)
    await publish(domain)
    receiver.answer, receiver.headers = 429, {"Retry-After": "600"}
    await deliver_all(dispatcher_for(receiver))
    view = await webhook_view(created.id)
    assert view.next_attempt_at is not None
    assert 590 < (view.next_attempt_at - datetime.now(UTC)).total_seconds() <= 601


async def test_a_receiver_that_does_not_answer_costs_one_attempt(
    receiver: Receiver, domain: Domain
):
    created = await add_endpoint(receiver)
    await publish(domain)
    receiver.answer = None
    await deliver_all(dispatcher_for(receiver, attempt_seconds=0.2))
    (entry,) = await deliveries_of(created.id)
    assert (entry.http_status, entry.error_code, entry.delivered) == (None, "timeout", False)


async def test_an_endpoint_is_disabled_after_the_last_attempt_and_continues_when_enabled(
    receiver: Receiver, domain: Domain
):
    created = await add_endpoint(receiver)
    number = await publish(domain)
    receiver.answer = 503
    dispatcher = dispatcher_for(receiver)
    for _ in range(len(RETRY_DELAYS) + 3):
        await set_endpoint(created.id, next_attempt_at=None)
        await deliver_all(dispatcher)
    view = await webhook_view(created.id)
    assert (view.status, view.disabled_reason, view.failures) == ("disabled", "failing", 10)
    assert len(receiver.statuses) == 10
    receiver.answer = 200
    async with transaction() as session:
        await endpoints.change_endpoint(session, created.id, receiver.policy, {"enabled": True})
    await deliver_all(dispatcher)
    assert receiver.seqs == [number]
    assert (await webhook_view(created.id)).status == "active"


async def test_a_receiver_that_is_gone_is_disabled_at_once(receiver: Receiver, domain: Domain):
    created = await add_endpoint(receiver)
    await publish(domain)
    receiver.answer = 410
    await deliver_all(dispatcher_for(receiver))
    view = await webhook_view(created.id)
    assert (view.status, view.disabled_reason) == ("disabled", "gone")


async def test_a_replay_delivers_the_messages_of_a_lost_day_again(
    receiver: Receiver, domain: Domain
):
    created = await add_endpoint(receiver)
    async with transaction() as session:
        for hours in (30, 20, 10):
            at = datetime.now(UTC) - timedelta(hours=hours)
            await add_published_scan(session, domain, finished_at=at)
    dispatcher = dispatcher_for(receiver)
    await deliver_all(dispatcher)
    async with transaction() as session:
        yesterday = datetime.now(UTC) - timedelta(days=1)
        await endpoints.replay(session, created.id, since=yesterday)
    await deliver_all(dispatcher)
    async with transaction() as session:
        await endpoints.replay(session, created.id, after_seq=0)
    await deliver_all(dispatcher)
    assert receiver.seqs == [1, 2, 3, 2, 3, 1, 2, 3]
    assert len({received.id for received in receiver.messages}) == 3


async def test_a_replay_of_what_is_not_retained_is_refused(receiver: Receiver, domain: Domain):
    created = await add_endpoint(receiver)
    await publish(domain)
    async with transaction() as session:
        await session.execute(update(FeedHead).values(retained_from=1))
        for number in (0, 2):
            with pytest.raises(CursorExpired):
                await endpoints.replay(session, created.id, after_seq=number)


async def test_an_endpoint_continues_where_the_feed_is_retained(receiver: Receiver, domain: Domain):
    await add_endpoint(receiver)
    for _ in range(3):
        await publish(domain)
    async with transaction() as session:
        await session.execute(update(FeedHead).values(retained_from=2))
    await deliver_all(dispatcher_for(receiver))
    assert receiver.seqs == [3]
    assert receiver.messages[0].data["previous_seq"] == 2


async def test_two_processes_deliver_each_message_once(receiver: Receiver, domain: Domain):
    await add_endpoint(receiver)
    numbers = [await publish(domain) for _ in range(5)]
    first, second = dispatcher_for(receiver), dispatcher_for(receiver)
    await asyncio.gather(*(deliver_all(one) for one in (first, second, first, second)))
    assert receiver.seqs == numbers


async def test_an_endpoint_whose_process_died_is_served_again_when_its_lease_ends(
    receiver: Receiver, domain: Domain
):
    created = await add_endpoint(receiver)
    number = await publish(domain)
    async with transaction() as session:
        (dead,) = await claim_endpoints(session, 5)
    dispatcher = dispatcher_for(receiver)
    await deliver_all(dispatcher)
    assert receiver.seqs == []
    await set_endpoint(created.id, lease_until=func.now() - timedelta(seconds=1))
    await deliver_all(dispatcher)
    assert receiver.seqs == [number]
    (entry,) = await deliveries_of(created.id)
    late = webhook_deliveries.NewDelivery(
        **{
            name: getattr(entry, name)
            for name in webhook_deliveries.NewDelivery.__dataclass_fields__
        }
    )
    async with transaction() as session:
        assert not await record_delivered(session, dead, late, 0, keep_lease=True)
    assert len(await deliveries_of(created.id)) == 1


async def test_a_process_that_stops_returns_its_endpoints_at_once(
    receiver: Receiver, domain: Domain
):
    await add_endpoint(receiver)
    number = await publish(domain)
    receiver.answer = None
    stopping = dispatcher_for(receiver)
    await stopping.poll()
    await wait_until(lambda: bool(receiver.requests))
    await stopping.stop()
    receiver.answer = 200
    await deliver_all(dispatcher_for(receiver))
    assert receiver.seqs == [number]


async def test_a_change_of_an_endpoint_stops_who_is_sending(receiver: Receiver, domain: Domain):
    created = await add_endpoint(receiver)
    await publish(domain)
    async with transaction() as session:
        (claimed,) = await claim_endpoints(session, 5)
        await endpoints.change_endpoint(session, created.id, receiver.policy, {"enabled": False})
        assert not await webhook_deliveries.pass_numbers(session, claimed, 9, keep_lease=True)
    assert (await webhook_view(created.id)).delivered_seq == 0


async def test_an_address_that_is_no_longer_allowed_is_not_contacted(
    receiver: Receiver, domain: Domain
):
    created = await add_endpoint(receiver)
    await publish(domain)
    async with Receiver() as other:
        await deliver_all(dispatcher_for(other))
    (entry,) = await deliveries_of(created.id)
    assert (entry.error_code, receiver.requests) == ("egress_denied", [])


async def test_a_test_message_reaches_a_disabled_endpoint_and_is_logged(receiver: Receiver):
    created = await add_endpoint(receiver)
    await set_endpoint(created.id, disabled_at=func.now(), disabled_reason="requested")
    delivery = await endpoints.deliver_test(created.id, Settings(), receiver.policy)
    assert (delivery.delivered, delivery.http_status) == (True, 204)
    assert [received.type for received in receiver.messages] == ["webhook.test"]
    assert [entry.message_id for entry in await deliveries_of(created.id)] == [delivery.message_id]
    async with transaction() as session:
        await endpoints.delete_endpoint(session, created.id)
    with pytest.raises(WebhookNotFound):
        await endpoints.deliver_test(created.id, Settings(), receiver.policy)


async def test_messages_bear_the_time_of_the_database_whatever_the_clock_of_the_machine_says(
    receiver: Receiver, domain: Domain, monkeypatch: pytest.MonkeyPatch
):
    created = await add_endpoint(receiver)
    await publish(domain)
    an_hour_ahead = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: an_hour_ahead)
    await deliver_all(dispatcher_for(receiver))
    await endpoints.deliver_test(created.id, Settings(), receiver.policy)
    # The receiver refuses what is more than five minutes off.
    assert [received.type for received in receiver.messages] == ["scan.published", "webhook.test"]


async def test_deliveries_are_pruned_by_age_and_by_number(
    receiver: Receiver, domain: Domain, monkeypatch: pytest.MonkeyPatch
):
    created = await add_endpoint(receiver)
    for _ in range(6):
        await publish(domain)
    await deliver_all(dispatcher_for(receiver))
    old = select(WebhookDelivery.id).order_by(WebhookDelivery.id).limit(1)
    async with transaction() as session:
        await session.execute(
            update(WebhookDelivery)
            .where(WebhookDelivery.id.in_(old))
            .values(created_at=func.now() - timedelta(days=31))
        )
        assert await prune_deliveries(session, days=30) == 1
        assert await prune_deliveries(session, days=30) == 0
        monkeypatch.setattr(webhook_deliveries, "MAX_KEPT_DELIVERIES", 2)
        assert await prune_deliveries(session, days=30) == 3
        assert await prune_deliveries(session, days=30) == 0
    assert [entry.seq for entry in await deliveries_of(created.id)] == [6, 5]


async def test_ten_receivers_that_do_not_answer_hold_up_neither_others_nor_the_database(
    receiver: Receiver, domain: Domain
):
    async with Receiver() as silent:
        silent.answer = None
        for _ in range(10):
            await add_endpoint(silent)
        await add_endpoint(receiver)
        policy = receiver.policy.with_allowed(silent.host_port)
        dispatcher = Dispatcher(Settings(), policy)
        numbers = [await publish(domain) for _ in range(3)]
        await dispatcher.poll()
        await wait_until(lambda: len(silent.requests) == 10 and receiver.seqs == numbers)
        await wait_until(lambda: pool_state().in_use == 0)
        numbers.append(await publish(domain))
        await dispatcher.poll()
        await wait_until(lambda: receiver.seqs == numbers)
        assert len(silent.requests) == 10
        await dispatcher.stop()


async def test_endpoints_take_turns_while_scans_are_published(receiver: Receiver, domain: Domain):
    for _ in range(3):
        await add_endpoint(receiver, types=["scan.failed"])
    await add_endpoint(receiver)
    dispatcher = dispatcher_for(receiver, slots=1)
    numbers = []
    for _ in range(8):
        numbers.append(await publish(domain))
        await deliver_all(dispatcher)
    assert receiver.seqs[:4] == numbers[:4]
