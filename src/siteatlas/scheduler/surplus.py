"""Decides which claimed jobs are put back, and when they become due again.

The queue does not know the registrable domain of a job, so a claim can take more jobs of a site
than may run. Jobs without a slot are put back immediately, so that other workers can claim them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from siteatlas.net.egress import EgressPolicy
from siteatlas.queue.fence import Claim
from siteatlas.scheduler.slots import Shortage, Slots, slot_shares

MIN_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 300.0


class Surplus:
    """One per process.

    The jobs of a site that are put back become due one after another, as many per second as the
    site has slots. However many there are, the next claims find jobs of other sites, even those of
    lower priority, and rarely take the same jobs again.

    Jobs of a user without a slot keep their time and thereby their order: the next claims skip that
    user until a slot is free.
    """

    def __init__(
        self, slots: Slots, policy: EgressPolicy, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._slots = slots
        self._policy = policy
        self._clock = clock
        self._next_due: dict[str | None, float] = {}

    def pauses(self, claims: Sequence[Claim]) -> dict[Claim, float | None]:
        """The claims to be put back, each with the seconds until it is due again.

        None if it is due at the same time as before.
        """
        if len(claims) + self._slots.running <= self._slots.min_share:
            return {}
        shares = [slot_shares(claim, self._policy) for claim in claims]
        now = self._clock()
        self._next_due = {site: at for site, at in self._next_due.items() if at > now}
        return {
            claim: self._pause(site, now) if shortage is Shortage.SITE else None
            for claim, (site, _), shortage in zip(
                claims, shares, self._slots.shortages(shares), strict=True
            )
            # A suspect first waits for the other jobs to end.
            if shortage is not None and not claim.is_suspect
        }

    def _pause(self, site: str | None, now: float) -> float:
        """The seconds until the next job of this site is due; the one after it is due later."""
        due = max(now + MIN_PAUSE_SECONDS, self._next_due.get(site, 0.0))
        due = min(due, now + MAX_PAUSE_SECONDS)
        self._next_due[site] = due + 1 / self._slots.max_per_site
        return due - now
