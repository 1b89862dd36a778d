"""When the dates of a document are believed."""

from __future__ import annotations

import pytest

from siteatlas.processor.lastmod_trust import LastmodTrust


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
