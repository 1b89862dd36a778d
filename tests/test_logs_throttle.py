"""A flood of events becomes a few log lines that say how many had none."""

from __future__ import annotations

from siteatlas.logs import Throttle


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_first_events_have_a_line_each() -> None:
    throttle = Throttle(burst=3, seconds=1, clock=Clock())
    assert [throttle.admit() for _ in range(5)] == [0, 0, 0, None, None]


def test_later_ones_have_one_a_second_with_the_number_of_those_left_out() -> None:
    clock = Clock()
    throttle = Throttle(burst=1, seconds=1, clock=clock)
    assert [throttle.admit() for _ in range(4)] == [0, None, None, None]
    clock.now += 1
    assert [throttle.admit() for _ in range(3)] == [3, None, None]
    clock.now += 3600
    assert [throttle.admit() for _ in range(2)] == [2, None]
