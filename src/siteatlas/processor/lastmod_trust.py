"""Whether the dates of a document are believed.

Some generators write the time of generation into every entry. Where nearly all dates move and
nothing else does, a date says nothing about its page. Dates that are not believed are not stored
when they move, so a sample of them is kept to tell whether they still do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from siteatlas.storage.statements.url_rows import NO_DATE

MIN_DATED = 20
MANY_MOVED = 0.9
FEW_MOVED = 0.1
READS_IN_A_ROW = 2
SAMPLE_SIZE = 64


class LastmodTrust(NamedTuple):
    """Whether dates are trusted, and how many reads in a row have spoken for the opposite."""

    trusted: bool = True
    streak: int = 0

    def after_read(self, *, dated: int, moved: int) -> LastmodTrust:
        """The trust after a complete read.

        `dated` entries had a date; of `moved` ones nothing but the date had changed.
        """
        if self.trusted:
            against = dated >= MIN_DATED and moved >= MANY_MOVED * dated
        else:
            against = moved < FEW_MOVED * dated
        if not against:
            return LastmodTrust(self.trusted, 0)
        if self.streak + 1 < READS_IN_A_ROW:
            return LastmodTrust(self.trusted, self.streak + 1)
        return LastmodTrust(not self.trusted, 0)


class DateSample:
    """The dates of some entries of a document, compared with those of the read before."""

    def __init__(self, before: Mapping[str, int] | None = None) -> None:
        self._before = {int(key): date for key, date in (before or {}).items()}
        self._seen: dict[int, int] = {}
        self._others: dict[int, int] = {}

    def note(self, hashes: Sequence[int], dates: Sequence[int]) -> None:
        """Note listed entries: those of the read before, and others as long as there is room."""
        for key, date in zip(hashes, dates, strict=True):
            if date == NO_DATE:
                continue
            if key in self._before:
                self._seen[key] = date
            elif len(self._others) < SAMPLE_SIZE:
                self._others[key] = date

    @property
    def compared(self) -> int:
        """How many entries were in the sample of the read before."""
        return len(self._seen)

    @property
    def moved(self) -> int:
        """How many of these have another date now."""
        return sum(1 for key, date in self._seen.items() if self._before[key] != date)

    def stored(self) -> dict[str, int]:
        """The sample for the next read."""
        pairs = [*self._seen.items(), *self._others.items()][:SAMPLE_SIZE]
        return {str(key): date for key, date in pairs}
