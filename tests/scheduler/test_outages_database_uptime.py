"""Uptime of the database: an outage is distinguished from a silent worker."""

from __future__ import annotations

import time

import pytest

from siteatlas.scheduler.outages import DatabaseUptime

LEASE = 60.0


class Clock:
    """A monotonic clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_process_that_just_started_takes_silence_for_a_death(clock: Clock):
    assert DatabaseUptime(LEASE).covers_lease


def test_regular_answers_keep_the_contact_unbroken(clock: Clock):
    uptime = DatabaseUptime(LEASE)
    for _ in range(10):
        clock.pass_time(LEASE / 4)
        uptime.record_response()
    assert uptime.covers_lease


def test_a_gap_breaks_it_also_before_the_next_answer(clock: Clock):
    uptime = DatabaseUptime(LEASE)
    uptime.record_response()
    clock.pass_time(LEASE)
    assert not uptime.covers_lease


def test_after_an_outage_it_takes_a_whole_lease_until_jobs_are_blamed_again(clock: Clock):
    uptime = DatabaseUptime(LEASE)
    uptime.record_response()
    clock.pass_time(LEASE)
    uptime.record_response()
    for _ in range(3):
        clock.pass_time(LEASE / 4)
        uptime.record_response()
        assert not uptime.covers_lease
    clock.pass_time(LEASE / 4)
    assert uptime.covers_lease
