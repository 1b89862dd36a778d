"""The benchmark of shapes: its documents, and what it makes of the timings."""

from __future__ import annotations

import pytest

from bench.our_shapes import read
from bench.shape_documents import SHAPES, document
from bench.shape_figures import Timing, as_data, missed_goals, table


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_the_same_on_each_run_and_read_completely(name):
    content = document(name, 120)
    assert document(name, 120) == content
    assert read(content, SHAPES[name].kind) == 120


def timings(ours: float, scrapy: float, urls: int = 100) -> list[Timing]:
    rounds = (0.9, 1.0, 1.5)
    return [
        timing
        for factor in rounds
        for timing in (
            Timing("news", "our", ours * factor, 100),
            Timing("news", "scrapy", scrapy * factor, urls),
        )
    ]


def test_a_peer_is_compared_by_the_medians_of_the_same_shape():
    shown = table(timings(1.0, 2.0))
    assert "2.0 x" in shown
    assert "-10% +50%" in shown
    ours, scrapy = as_data(timings(1.0, 2.0))
    assert (ours["median"], scrapy["median"], scrapy["times_ours"]) == (1.0, 2.0, 2.0)


def test_a_goal_that_is_missed_is_named():
    assert missed_goals(timings(1.0, 2.0)) == []
    assert missed_goals(timings(1.0, 1.2)) == [
        "news: scrapy takes 1.20 times as long, the goal is 1.3."
    ]


def test_a_peer_that_finds_nothing_does_not_read_the_shape():
    assert missed_goals(timings(1.0, 0.1, urls=0)) == []
    assert table(timings(1.0, 0.1, urls=0)).splitlines()[1].endswith("-")
