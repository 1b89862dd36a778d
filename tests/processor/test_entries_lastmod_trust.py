"""When the dates of a document are believed."""

from __future__ import annotations

import pytest

from siteatlas.catalog.url_copy import NO_DATE
from siteatlas.processor.comparison import LastmodTrust
from siteatlas.processor.entries import SAMPLE_SIZE, DateSample


def after(*reads: tuple[int, int], trust: LastmodTrust | None = None) -> LastmodTrust:
    trust = trust or LastmodTrust()
    for dated, moved in reads:
        trust = trust.after_read(dated=dated, moved=moved)
    return trust


@pytest.mark.parametrize(
    ("reads", "trusted"),
    [
        ([(20, 18)], True),
        ([(20, 18), (20, 18)], False),
        ([(20, 17), (20, 20)], True),
        ([(20, 20), (20, 17), (20, 20)], True),
        ([(19, 19), (19, 19)], True),
        ([(20, 20), (20, 20), (20, 1)], False),
        ([(20, 20), (20, 20), (20, 1), (20, 1)], True),
        ([(20, 20), (20, 20), (20, 1), (20, 2), (20, 1)], False),
    ],
)
def test_two_reads_in_a_row_decide(reads, trusted):
    assert after(*reads).trusted is trusted


def test_a_decision_starts_the_count_again():
    assert after((20, 20), (20, 20)) == LastmodTrust(trusted=False, streak=0)
    assert after((20, 0), (20, 0), trust=LastmodTrust(trusted=False)) == LastmodTrust()


def test_a_sample_shows_how_many_of_its_dates_moved():
    first = DateSample()
    first.note(range(100), [1] * 100)
    stored = first.stored()
    assert (len(stored), first.compared) == (SAMPLE_SIZE, 0)
    second = DateSample(stored)
    second.note(range(200, 210), [1] * 10)
    second.note(range(100), [2] * 5 + [1] * 95)
    assert (second.compared, second.moved) == (SAMPLE_SIZE, 5)
    assert second.stored().keys() == stored.keys()


def test_a_sample_replaces_entries_that_are_gone_and_leaves_out_undated_ones():
    sample = DateSample({"1": 1, "2": 1})
    sample.note([2, 3, 4], [1, NO_DATE, 5])
    assert (sample.compared, sample.moved) == (1, 0)
    assert sample.stored() == {"2": 1, "4": 5}
