"""Filters the entries of a scan by modification date and URL patterns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from siteatlas.scanner.child_filter import any_of_patterns
from siteatlas.scanner.events import EncodedEntries, EntryColumns


@dataclass(slots=True)
class EntryFilter:
    """Keeps entries changed on or after `since` whose URLs fit; counts what it leaves out."""

    since: datetime | None = None
    include: re.Pattern[str] | None = None
    exclude: re.Pattern[str] | None = None
    kept: int = 0
    left_out: int = 0
    undated: int = 0

    @classmethod
    def of(
        cls, since: datetime | None, include: Sequence[str], exclude: Sequence[str]
    ) -> EntryFilter:
        """The filter that these patterns describe: `*`, `?` and `[…]` over the whole URL."""
        return cls(since, any_of_patterns(include), any_of_patterns(exclude))

    @property
    def keeps_all(self) -> bool:
        """Whether there is nothing to leave out."""
        return self.since is None and self.include is None and self.exclude is None

    def apply(self, columns: EntryColumns) -> EntryColumns:
        """The entries that are wanted, in their order."""
        if self.keeps_all:
            return columns
        wanted = [self._passes_since(lastmod) for lastmod in columns.lastmods]
        if self.include is not None:
            fits = self.include.match
            pairs = zip(wanted, columns.urls, strict=True)
            wanted = [want and fits(url) is not None for want, url in pairs]
        if self.exclude is not None:
            hits = self.exclude.match
            pairs = zip(wanted, columns.urls, strict=True)
            wanted = [want and hits(url) is None for want, url in pairs]
        kept = wanted.count(True)
        self.kept += kept
        self.left_out += len(wanted) - kept
        return columns.where(wanted)

    def count_encoded(self, encoded: EncodedEntries) -> None:
        """Count entries that a reader process has filtered in the same way."""
        self.kept += encoded.kept
        self.left_out += encoded.found - encoded.kept
        self.undated += encoded.undated

    def _passes_since(self, lastmod: datetime | None) -> bool:
        """Whether `siteatlas scan --since` keeps an entry; counts entries without a lastmod."""
        if self.since is None:
            return True
        if lastmod is None:
            self.undated += 1
            return False
        return lastmod >= self.since
