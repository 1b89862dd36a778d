"""Memory budgets of a process for entries and for open documents."""

from __future__ import annotations

MAX_ENTRY_BYTES = 6 * 1024 * 1024
MAX_DOCUMENT_BYTES = 8 * 1024 * 1024


class MemoryBudget:
    """A shared count of bytes. Its users decide what to do when it is spent."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held = 0

    @property
    def spent(self) -> bool:
        """Whether the jobs together hold more than the maximum."""
        return self._held >= self._max_bytes

    @property
    def held(self) -> int:
        """The approximate number of bytes held now."""
        return self._held

    def reserve(self, size: int) -> None:
        """Add bytes to the count."""
        self._held += size

    def free(self, size: int) -> None:
        """Subtract bytes from the count."""
        self._held -= size


class EntryMemoryBudget(MemoryBudget):
    """The budget of unwritten entries: when it is spent, each recorder writes its rows.

    `documents` is the budget of the stored entries of documents being read: when it is spent,
    further documents use a form that takes less memory.
    """

    def __init__(
        self, max_bytes: int = MAX_ENTRY_BYTES, max_document_bytes: int = MAX_DOCUMENT_BYTES
    ) -> None:
        super().__init__(max_bytes)
        self.documents = MemoryBudget(max_document_bytes)
