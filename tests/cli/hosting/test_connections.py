"""A service without free connections drops slow clients, and never a request in progress."""

from __future__ import annotations

import resource

import pytest
from structlog.testing import capture_logs

from siteatlas.cli.hosting.connections import Admission, ConnectionLimits, ConnectionRegistry
from siteatlas.settings import Settings

LIMITS = ConnectionLimits(connections=2, reserve=1)


class Connection:
    def __init__(self) -> None:
        self.is_dropped = False

    def drop(self) -> None:
        self.is_dropped = True


@pytest.fixture
def room() -> ConnectionRegistry:
    return ConnectionRegistry(LIMITS)


def full(room: ConnectionRegistry) -> tuple[Connection, Connection]:
    first, second = Connection(), Connection()
    assert [room.enter(first), room.enter(second)] == [Admission.FULL, Admission.FULL]
    return first, second


def test_who_has_waited_longest_for_a_request_makes_room(room: ConnectionRegistry) -> None:
    first, second = full(room)
    room.waits_for_request(second)
    room.waits_for_request(first)
    assert room.enter(Connection()) is Admission.FULL
    assert (first.is_dropped, second.is_dropped) == (False, True)


def test_one_that_sends_byte_by_byte_has_not_waited_less(room: ConnectionRegistry) -> None:
    first, second = full(room)
    for connection in (first, second, first):
        room.waits_for_request(connection)
    room.enter(Connection())
    assert (first.is_dropped, second.is_dropped) == (True, False)


def test_a_reader_goes_only_when_nobody_waits_for_a_request(room: ConnectionRegistry) -> None:
    first, second = full(room)
    room.waits_for_reader(first)
    room.waits_for_request(second)
    room.enter(Connection())
    assert (first.is_dropped, second.is_dropped) == (False, True)
    room.enter(Connection())
    assert first.is_dropped


def test_requests_in_work_stay_and_the_reserve_answers_for_health(room: ConnectionRegistry) -> None:
    first, second = full(room)
    room.waits_for_request(first)
    room.has_request(first)
    room.waits_for_reader(second)
    room.has_reader(second)
    assert room.enter(Connection()) is Admission.HEALTH_ONLY
    assert room.enter(Connection()) is Admission.NONE
    assert not (first.is_dropped)
    assert not (second.is_dropped)
    room.leave(first)
    room.leave(second)
    assert room.enter(Connection()) is Admission.FULL


def test_one_that_was_dropped_does_not_come_back(room: ConnectionRegistry) -> None:
    first, _second = full(room)
    room.waits_for_request(first)
    room.enter(Connection())
    room.waits_for_request(first)
    room.waits_for_reader(first)
    assert room.enter(Connection()) is Admission.HEALTH_ONLY


def test_a_full_service_says_so_in_few_lines(room: ConnectionRegistry) -> None:
    full(room)
    with capture_logs() as lines:
        for _ in range(100):
            room.enter(Connection())
    assert {line["event"] for line in lines} == {"connections_exhausted"}
    assert len(lines) < 5


def test_connections_take_at_most_half_of_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (256, 4096))
    assert ConnectionLimits.of(Settings()).connections == 128
    assert ConnectionLimits.of(Settings(max_connections=50)).connections == 50
    unlimited = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (unlimited, unlimited))
    assert ConnectionLimits.of(Settings()).connections == 500
