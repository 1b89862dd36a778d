"""Contact with the database: an outage is told apart from a silent worker."""

from __future__ import annotations

import time

import pytest

from siteatlas.scheduler.contact import Contact

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
    assert Contact(LEASE).unbroken


def test_regular_answers_keep_the_contact_unbroken(clock: Clock):
    contact = Contact(LEASE)
    for _ in range(10):
        clock.pass_time(LEASE / 4)
        contact.made()
    assert contact.unbroken


def test_a_gap_breaks_it_also_before_the_next_answer(clock: Clock):
    contact = Contact(LEASE)
    contact.made()
    clock.pass_time(LEASE)
    assert not contact.unbroken


def test_after_an_outage_it_takes_a_whole_lease_until_jobs_are_blamed_again(clock: Clock):
    contact = Contact(LEASE)
    contact.made()
    clock.pass_time(LEASE)
    contact.made()
    for _ in range(3):
        clock.pass_time(LEASE / 4)
        contact.made()
        assert not contact.unbroken
    clock.pass_time(LEASE / 4)
    assert contact.unbroken
