"""How many pending jobs of one user a claim examines."""

from __future__ import annotations

from siteatlas.queue.claims import examined_depth


def test_a_claim_looks_further_than_the_jobs_it_may_claim():
    assert all(examined_depth(jobs) >= 2 * jobs + 64 for jobs in range(1, 1001))


def test_claims_of_all_sizes_share_a_few_statements():
    assert {examined_depth(jobs) for jobs in range(1, 33)} == {128}
    assert len({examined_depth(jobs) for jobs in range(1, 1001)}) == 6
