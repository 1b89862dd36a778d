"""Memory budgets of a process for entries and for open documents."""

from __future__ import annotations

MAX_ENTRY_BYTES = 32 * 1024 * 1024
MAX_DOCUMENT_BYTES = 48 * 1024 * 1024


class MemoryBudget:
    """A shared count of bytes. What follows when it is spent is for those who take from it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0

    @property
    def spent(self) -> bool:
        """Whether the jobs together hold more than they should."""
        return self._held >= self._most

    @property
    def held(self) -> int:
        """About how many bytes are held now."""
        return self._held

    def reserve(self, size: int) -> None:
        """So many bytes more are held."""
        self._held += size

    def free(self, size: int) -> None:
        """So many bytes are held no longer."""
        self._held -= size


class EntryMemoryBudget(MemoryBudget):
    """Entries that wait to be written: when it is spent, each recorder writes what it holds.

    `documents` is the budget of what is known of the documents that are being read: when it is
    spent, they hold what comes in less memory.
    """

    def __init__(
        self, most: int = MAX_ENTRY_BYTES, most_of_documents: int = MAX_DOCUMENT_BYTES
    ) -> None:
        super().__init__(most)
        self.documents = MemoryBudget(most_of_documents)
