"""When a message is tried again, and what a response means for its endpoint."""

from __future__ import annotations

import random
from dataclasses import dataclass

from siteatlas.storage.models import DisabledReason

ATTEMPT_SECONDS = 15.0
MINUTE, HOUR = 60.0, 3600.0
# The delays of Standard Webhooks 1.0 after each failed attempt but the last; three days in all.
RETRY_DELAYS = (
    5.0,
    5 * MINUTE,
    30 * MINUTE,
    2 * HOUR,
    5 * HOUR,
    10 * HOUR,
    14 * HOUR,
    20 * HOUR,
    24 * HOUR,
)
JITTER = 0.1
SUCCESS = range(200, 300)
GONE = 410


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one attempt ended; without a response the status is None and there is an error code."""

    status: int | None
    error_code: str | None
    seconds: float
    retry_after: float | None = None

    @property
    def delivered(self) -> bool:
        """Whether the receiver accepted the message; a redirect is a failure."""
        return self.status in SUCCESS


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from a failed attempt: the delay of the next one, or the end of trying."""

    retry_seconds: float
    disable: DisabledReason | None


def judge_failure(attempt: Attempt, failures: int) -> Verdict:
    """What a failed attempt means after so many earlier ones at the same message.

    `Retry-After` can only make the delay longer.
    """
    if attempt.status == GONE:
        return Verdict(0.0, DisabledReason.GONE)
    if failures >= len(RETRY_DELAYS):
        return Verdict(0.0, DisabledReason.FAILING)
    delay = RETRY_DELAYS[failures] * random.uniform(1 - JITTER, 1 + JITTER)
    return Verdict(max(delay, attempt.retry_after or 0.0), None)
