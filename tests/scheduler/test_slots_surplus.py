"""Claimed jobs without a share of the slots, and when they are due again."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from siteatlas.net.egress import EgressPolicy
from siteatlas.queue.fence import Claim, Priority
from siteatlas.scheduler.slots import MAX_PAUSE_SECONDS, RunningJob, Slots, Surplus
from siteatlas.storage.models import LOCAL_USER_ID
from tests.scheduler.test_slots import claim


def claims_of(domain: str, count: int) -> list[Claim]:
    one = replace(claim(priority=Priority.BATCH), created_by=LOCAL_USER_ID)
    return [replace(one, id=n, base_url=f"https://h{n}.{domain}") for n in range(count)]


def surplus_with(slots: Slots, now: list[float], allowed: str = "") -> Surplus:
    return Surplus(slots, EgressPolicy.from_text(allowed), clock=lambda: now[0])


def seconds(surplus: Surplus, claims: list[Claim]) -> list[float]:
    """The pauses of the claims that are put back for their site."""
    return [pause for pause in surplus.pauses(claims).values() if pause is not None]


def full_slots() -> Slots:
    """32 slots, of which example.com uses its share."""
    slots = Slots(32)
    for one in claims_of("example.com", slots.max_per_site):
        slots.add(RunningJob(one, site="example.com"))
    return slots


async def test_only_the_jobs_beyond_the_share_of_their_site_are_put_back():
    claims = claims_of("example.com", 12)
    surplus = surplus_with(Slots(32), [0.0])
    assert list(surplus.pauses(claims)) == claims[8:]
    assert surplus.pauses(claims_of("example.com", 8)) == {}


async def test_other_sites_and_our_own_hosts_are_not_put_back():
    assert surplus_with(full_slots(), [0.0]).pauses(claims_of("other.example", 8)) == {}
    allowed = ",".join(f"h{number}.example.com:443" for number in range(8))
    own = surplus_with(full_slots(), [0.0], allowed)
    assert own.pauses(claims_of("example.com", 8)) == {}


async def test_a_suspect_is_never_put_back():
    suspect = replace(claims_of("example.com", 1)[0], is_suspect=True)
    assert surplus_with(full_slots(), [0.0]).pauses([suspect]) == {}


async def test_jobs_that_are_put_back_become_due_as_many_a_second_as_their_site_has_slots():
    now = [100.0]
    surplus = surplus_with(full_slots(), now)
    due = []
    for _ in range(10):
        due += [now[0] + pause for pause in seconds(surplus, claims_of("example.com", 24))]
        now[0] += 0.05
    assert len(due) == 240
    assert min(due) == 101.0
    for second in range(101, 130):
        assert sum(second <= at < second + 1 for at in due) == 8


async def test_jobs_of_one_site_do_not_delay_those_of_another():
    now, slots = [0.0], full_slots()
    for one in claims_of("other.example", slots.max_per_site):
        slots.add(RunningJob(one, site="other.example"))
    surplus = surplus_with(slots, now)
    surplus.pauses(claims_of("example.com", 200))
    assert list(surplus.pauses(claims_of("other.example", 1)).values()) == [1.0]


async def test_jobs_of_a_user_without_a_slot_keep_their_order():
    slots, user = Slots(32), uuid4()
    claims = [replace(claims_of(f"site{n}.example", 1)[0], id=n, created_by=user) for n in range(9)]
    for one in claims_of("other.example", slots.max_per_user - 1):
        slots.add(RunningJob(one, user=user))
    assert surplus_with(slots, [0.0]).pauses(claims) == dict.fromkeys(claims[1:])


async def test_no_job_is_put_back_for_more_than_some_minutes():
    pauses = seconds(surplus_with(full_slots(), [0.0]), claims_of("example.com", 5_000))
    assert max(pauses) == pytest.approx(MAX_PAUSE_SECONDS)
