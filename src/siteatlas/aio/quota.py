"""Quotas of concurrent requests: a total per process, and a limit per user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID


class Quota:
    """The quota of one process. For a holder of None, only the total applies.

    Callers must not await between `has_room` and `taken_by`; otherwise the total could be exceeded.
    """

    def __init__(self, total: int, per_user: int) -> None:
        self.taken = 0
        self._total = total
        self._per_user = per_user
        self._taken_by: Counter[UUID] = Counter()

    def has_room(self, holder: UUID | None) -> bool:
        """Whether this holder may take one more."""
        is_below_limit = holder is None or self._taken_by[holder] < self._per_user
        return is_below_limit and self.taken < self._total

    @contextmanager
    def taken_by(self, holder: UUID | None) -> Iterator[None]:
        """Count one of this holder until the end of the block."""
        self._count(holder, 1)
        try:
            yield
        finally:
            self._count(holder, -1)

    def _count(self, holder: UUID | None, change: int) -> None:
        """Change the counts of the process and of this holder."""
        self.taken += change
        if holder is None:
            return
        self._taken_by[holder] += change
        if not self._taken_by[holder]:
            del self._taken_by[holder]
