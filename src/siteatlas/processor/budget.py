"""How many entries a process may hold in memory, over all of its jobs."""

from __future__ import annotations

MOST_ENTRIES = 60_000


class EntryBudget:
    """A shared count. When it is spent, each recorder writes what it holds at once."""

    def __init__(self, most: int = MOST_ENTRIES) -> None:
        self._most = most
        self._held = 0

    @property
    def spent(self) -> bool:
        """Whether the jobs together hold more than they should."""
        return self._held >= self._most

    def take(self, entries: int) -> None:
        """Entries were put aside for writing."""
        self._held += entries

    def give_back(self, entries: int) -> None:
        """Entries were written or dropped."""
        self._held -= entries
