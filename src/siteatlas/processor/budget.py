"""How much memory the entries of all jobs of a process may take."""

from __future__ import annotations

MOST_BYTES = 32 * 1024 * 1024


class EntryBudget:
    """A shared count. When it is spent, each recorder writes what it holds at once."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._held = 0

    @property
    def spent(self) -> bool:
        """Whether the jobs together hold more than they should."""
        return self._held >= self._most

    def take(self, size: int) -> None:
        """Entries of about this size were put aside for writing."""
        self._held += size

    def give_back(self, size: int) -> None:
        """Entries were written or dropped."""
        self._held -= size
