"""Detects URLs that a document lists more than once.

For scans that store nothing; the recorder tracks this itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.tally import Tally


class DuplicateUrls:
    """The URLs of one document as 64-bit hashes; records repeated ones in its tally."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._seen: set[int] = set()

    def note_repeated(self, urls: Sequence[str]) -> None:
        """Record in the tally of the document which of its next URLs it has listed before."""
        seen, new = self._seen, set(map(hash, urls))
        if len(new) == len(urls) and seen.isdisjoint(new):
            seen |= new
            return
        for url in urls:
            key = hash(url)
            if key in seen:
                self._tally.note(ProblemCode.DUPLICATE_URL, url=url)
            seen.add(key)
