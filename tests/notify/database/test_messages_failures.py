"""Failed attempts: which message they count for, and what an error of our own does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import func, text, update
from structlog.testing import capture_logs
from structlog.typing import EventDict

from siteatlas.notify.messages import RETRY_DELAYS
from siteatlas.storage.models import Domain
from tests.fixtures.changes import add_event, add_published_scan
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain
from tests.fixtures.waiting import wait_until
from tests.fixtures.webhooks import (
    Receiver,
    add_endpoint,
    deliver_all,
    deliveries_of,
    dispatcher_for,
    publish,
    set_endpoint,
    take_over,
    webhook_view,
)

LAST_ATTEMPT = len(RETRY_DELAYS)


@pytest.fixture
def log_lines() -> Iterator[list[EventDict]]:
    with capture_logs() as lines:
        yield lines


async def delete_site(domain: Domain) -> None:
    """Delete a site as users do: its scans are no longer shown."""
    async with transaction() as session:
        await session.execute(
            update(Domain).where(Domain.id == domain.id).values(deleted_at=func.now())
        )


async def test_failures_at_a_message_do_not_count_against_the_one_after_it(
    receiver: Receiver, domain: Domain
):
    created = await add_endpoint(receiver)
    async with transaction() as session:
        other = await add_domain(session, "other.example")
    await publish(domain)
    await publish(other)
    receiver.answer = 500
    dispatcher = dispatcher_for(receiver)
    for _ in range(LAST_ATTEMPT):
        await set_endpoint(created.id, next_attempt_at=None)
        await deliver_all(dispatcher)
    failing = await webhook_view(created.id)
    await delete_site(domain)
    await set_endpoint(created.id, next_attempt_at=None)
    await deliver_all(dispatcher)
    view = await webhook_view(created.id)
    assert (failing.failures, view.failures, view.status) == (LAST_ATTEMPT, 1, "failing")
    assert failing.failing_since
    assert view.failing_since
    assert view.failing_since > failing.failing_since
    assert [(one.seq, one.attempt) for one in (await deliveries_of(created.id))[:2]] == [
        (2, 1),
        (1, 9),
    ]


async def test_an_endpoint_whose_failed_message_is_gone_is_active_again(
    receiver: Receiver, domain: Domain
):
    created = await add_endpoint(receiver)
    await publish(domain)
    receiver.answer = 500
    dispatcher = dispatcher_for(receiver)
    await deliver_all(dispatcher)
    await delete_site(domain)
    await set_endpoint(created.id, next_attempt_at=func.now())
    await deliver_all(dispatcher)
    view = await webhook_view(created.id)
    assert (view.status, view.failures, view.delivered_seq) == ("active", 0, 1)
    assert (view.failing_since, view.next_attempt_at) == (None, None)


async def test_each_message_of_a_number_has_its_own_attempts(receiver: Receiver, domain: Domain):
    created = await add_endpoint(receiver, types=["scan.failed", "robots.changed"])
    async with transaction() as session:
        await add_published_scan(session, domain)
        scan = await add_published_scan(session, domain)
        await add_event(session, domain, "robots_changed", scan)
        await add_event(session, domain, "scan_failed")
    dispatcher = dispatcher_for(receiver)
    for answer in (500, 500, 200, 200):
        receiver.answer = answer
        await set_endpoint(created.id, next_attempt_at=None)
        await deliver_all(dispatcher)
    attempts = [(one.seq, one.attempt, one.delivered) for one in await deliveries_of(created.id)]
    assert attempts == [(3, 1, True), (2, 3, True), (2, 2, False), (2, 1, False)]


async def test_an_error_of_our_own_is_a_failed_attempt(
    receiver: Receiver, domain: Domain, log_lines: list[EventDict]
):
    created = await add_endpoint(receiver)
    number = await publish(domain)
    await set_endpoint(created.id, secret="whsec_x")
    dispatcher = dispatcher_for(receiver)
    await deliver_all(dispatcher)
    view = await webhook_view(created.id)
    assert (view.status, view.failures, view.delivered_seq) == ("failing", 1, 0)
    assert view.next_attempt_at is not None
    (entry,) = await deliveries_of(created.id)
    assert (entry.error_code, entry.seq, entry.http_status) == ("internal_error", number, None)
    assert (entry.type, entry.domain) == ("scan.published", "example.com")
    assert [line["exc_info"] for line in log_lines if line["event"] == "webhook_failed"] == [True]
    for _ in range(LAST_ATTEMPT):
        await set_endpoint(created.id, next_attempt_at=None)
        await deliver_all(dispatcher)
    assert (await webhook_view(created.id)).disabled_reason == "failing"


async def test_an_error_before_a_message_is_known_delays_the_endpoint(
    receiver: Receiver, domain: Domain
):
    created = await add_endpoint(receiver)
    await publish(domain)
    async with transaction() as session:
        # Cannot be compared with a number any more.
        await session.execute(text("ALTER TABLE scans ALTER published_seq TYPE text"))
    await deliver_all(dispatcher_for(receiver))
    view = await webhook_view(created.id)
    assert (view.failures, view.delivered_seq) == (1, 0)
    assert view.next_attempt_at is not None
    assert await deliveries_of(created.id) == []


async def test_a_process_that_lost_an_endpoint_does_not_report_it_as_disabled(
    receiver: Receiver, domain: Domain, log_lines: list[EventDict]
):
    created = await add_endpoint(receiver)
    await publish(domain)
    receiver.answer = 410
    receiver.gate.clear()
    stalled = dispatcher_for(receiver)
    await stalled.poll()
    await wait_until(lambda: receiver.statuses == [410])
    await take_over()
    receiver.gate.set()
    await wait_until(lambda: not stalled.is_busy)
    assert (await webhook_view(created.id)).status == "active"
    assert [line for line in log_lines if line["event"] == "webhook_disabled"] == []
