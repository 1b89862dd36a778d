"""How long a job waits before its next attempt."""

from __future__ import annotations

import pytest

from siteatlas.queue.completion import (
    BACKOFF_JITTER,
    POSTPONE_FIRST_SECONDS,
    POSTPONE_MAX_SECONDS,
    backoff_seconds,
    postpone_seconds,
)


@pytest.mark.criterion("errors-handled")
@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 15), (2, 60), (3, 240), (4, 960), (5, 3600), (9, 3600)]
)
def test_the_backoff_grows_by_four_up_to_an_hour(attempt: int, seconds: float):
    assert backoff_seconds(attempt, 0) == seconds


@pytest.mark.parametrize("pause", [backoff_seconds, postpone_seconds])
@pytest.mark.parametrize("jitter", [-1, -0.5, 0.5, 1])
def test_jitter_moves_a_pause_by_a_fifth_at_most(pause, jitter: float):
    assert pause(3, jitter) == pytest.approx(pause(3, 0) * (1 + BACKOFF_JITTER * jitter))


def test_a_busy_database_is_tried_again_soon_and_then_less_often():
    pauses = [postpone_seconds(times, 0) for times in range(12)]
    assert pauses[:3] == [
        POSTPONE_FIRST_SECONDS,
        POSTPONE_FIRST_SECONDS * 2,
        POSTPONE_FIRST_SECONDS * 4,
    ]
    assert pauses == sorted(pauses)
    assert pauses[-1] == POSTPONE_MAX_SECONDS
