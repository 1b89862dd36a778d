"""What one document gave: raw entries as its format reads them, and the count of its faults.

Formats fill these; `entries.py` turns raw entries into columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from siteatlas.errors import ScanError
from siteatlas.scanner.events import ChildLink, EntryColumns

Extras = dict[str, Any]


@dataclass(slots=True)
class Tally:
    """Faults of one document by code; `skipped` entries are not part of its columns.

    `extras_left` is how many characters of extras the entry being read may still have.
    """

    problems: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    extras_left: int = 0

    def note(self, code: str, count: int = 1) -> None:
        """Count something that was repaired or set aside without losing an entry."""
        self.problems[code] += count

    def skip(self, code: str, count: int = 1) -> None:
        """Count entries that cannot be kept."""
        self.problems[code] += count
        self.skipped += count


@dataclass(slots=True)
class RawEntries:
    """Entries as text, column by column; an absent value is the empty string.

    `locs_are_plain` promises that every loc is an ordinary URL that needs no further look.
    `extras` is empty when no entry has any.
    """

    locs: Sequence[str] = ()
    lastmods: Sequence[str] = ()
    changefreqs: Sequence[str] = ()
    priorities: Sequence[str] = ()
    extras: Sequence[Extras | None] = ()
    locs_are_plain: bool = False


@dataclass(slots=True)
class Harvest:
    """What one piece of a document gave. An `error` ends the document after these entries."""

    columns: EntryColumns = field(default_factory=EntryColumns)
    children: list[ChildLink] = field(default_factory=list)
    error: ScanError | None = None
