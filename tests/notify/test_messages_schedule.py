"""The schedule of retries, and what responses mean."""

from __future__ import annotations

import pytest

from siteatlas.notify.messages import RETRY_DELAYS, Attempt, judge_failure


def failed(status: int | None = 500, retry_after: float | None = None) -> Attempt:
    return Attempt(status, None, 0.1, retry_after)


def test_ten_attempts_take_the_time_that_standard_webhooks_gives_them():
    assert len(RETRY_DELAYS) + 1 == 10
    assert sum(RETRY_DELAYS) == 75 * 3600 + 35 * 60 + 5


@pytest.mark.parametrize("failures", range(len(RETRY_DELAYS)))
def test_each_failure_is_followed_by_the_next_delay(failures: int):
    delays = {judge_failure(failed(), failures).retry_seconds for _ in range(50)}
    assert len(delays) > 1
    assert all(abs(delay / RETRY_DELAYS[failures] - 1) <= 0.1 for delay in delays)


def test_the_last_failure_disables_the_endpoint():
    assert judge_failure(failed(), 8).disable is None
    assert judge_failure(failed(), 9).disable == "failing"


def test_410_disables_the_endpoint_at_once_and_404_does_not():
    assert judge_failure(failed(410), 0).disable == "gone"
    assert judge_failure(failed(404), 0).disable is None


def test_retry_after_makes_a_delay_longer_and_never_shorter():
    assert judge_failure(failed(503, 600.0), 0).retry_seconds == 600.0
    assert judge_failure(failed(503, 1.0), 1).retry_seconds > 200


@pytest.mark.parametrize(
    ("status", "delivered"), [(200, True), (204, True), (299, True), (301, False), (304, False)]
)
def test_only_a_status_of_success_is_a_delivery(status: int, delivered: bool):
    assert Attempt(status, None, 0.1).delivered is delivered
    assert not Attempt(None, "timeout", 15.0).delivered
