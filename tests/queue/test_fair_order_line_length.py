"""How far a claim looks into the line of one user."""

from __future__ import annotations

from siteatlas.queue.fair_order import FIRST_OF_A_LINE, line_length


def test_a_claim_looks_further_than_the_jobs_it_may_claim():
    assert all(line_length(jobs) >= 2 * jobs + FIRST_OF_A_LINE for jobs in range(1, 1001))


def test_claims_of_all_sizes_share_a_few_statements():
    assert {line_length(jobs) for jobs in range(1, 33)} == {128}
    assert len({line_length(jobs) for jobs in range(1, 1001)}) == 6
