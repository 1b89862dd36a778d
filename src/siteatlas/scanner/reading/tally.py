"""The result of reading one document: raw entries, and problems with samples.

Formats fill these; `entries.py` turns raw entries into columns.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

from siteatlas.errors import ScanError
from siteatlas.safe_text import truncated
from siteatlas.scanner.events import (
    ChildLink,
    EncodedEntries,
    EntryColumns,
    ProblemSample,
    RecognizedEntries,
)
from siteatlas.scanner.problem_codes import ProblemCode

MAX_SAMPLES = 20
MAX_SAMPLE_URL_CHARS = 500
MAX_SAMPLE_VALUE_CHARS = 200

Extras = dict[str, Any]


@dataclass(slots=True)
class Tally:
    """Problems of one document by code; `skipped` entries are not part of its columns.

    `entries` are those that were read before the current ones. `places` are the indexes of the
    current ones among the entries of their chunk, None if the chunk has no others. `extras_left` is
    how many characters of extras the entry being read may still have.
    """

    problems: Counter[ProblemCode] = field(default_factory=Counter)
    samples: dict[ProblemCode, list[ProblemSample]] = field(default_factory=dict)
    entries: int = 0
    skipped: int = 0
    places: Sequence[int] | None = None
    extras_left: int = 0

    @property
    def problem_count(self) -> int:
        """How many problems were counted so far."""
        return sum(self.problems.values())

    def note(
        self,
        code: ProblemCode,
        count: int = 1,
        *,
        url: str | None = None,
        value: str | None = None,
        place: int | None = None,
    ) -> None:
        """Count a problem that was repaired or ignored without skipping an entry.

        A URL or a value makes a sample, each once; `place` is the index among the current entries.
        """
        self.problems[code] += count
        if (url is not None or value is not None) and self.wants_sample(code):
            if place is not None and self.places is not None:
                place = self.places[place]
            entry = None if place is None else self.entries + place + 1
            sample = ProblemSample(
                _truncated(url, MAX_SAMPLE_URL_CHARS),
                _truncated(value, MAX_SAMPLE_VALUE_CHARS),
                entry,
            )
            kept = self.samples.setdefault(code, [])
            if sample not in kept:
                kept.append(sample)

    def skip(
        self,
        code: ProblemCode,
        count: int = 1,
        *,
        url: str | None = None,
        value: str | None = None,
        place: int | None = None,
    ) -> None:
        """Count entries that cannot be kept."""
        self.note(code, count, url=url, value=value, place=place)
        self.skipped += count

    def wants_sample(self, code: ProblemCode) -> bool:
        """Whether one more sample of this problem would be kept."""
        return len(self.samples.get(code, ())) < MAX_SAMPLES

    def counts(self) -> dict[str, int]:
        """How often each problem occurred, by code."""
        return {code.value: count for code, count in self.problems.items()}

    def kept_samples(self) -> dict[str, tuple[ProblemSample, ...]]:
        """The samples by code."""
        return {code.value: tuple(samples) for code, samples in self.samples.items()}


def _truncated(text: str | None, max_chars: int) -> str | None:
    """A value of an entry, shortened for a sample of a problem in a document."""
    return None if text is None else truncated(text.strip(), max_chars)


@dataclass(slots=True)
class RawEntries:
    """Entries as text, column by column; an absent value is the empty string.

    `locs_are_plain` promises that every loc is an ordinary URL that needs no further look.
    `extras` is empty when no entry has any. `digests` is empty if the entries have none.
    `recognized` entries of the same chunk need not be read; the others are at these `places` of it.
    """

    locs: Sequence[str] = ()
    lastmods: Sequence[str] = ()
    changefreqs: Sequence[str] = ()
    priorities: Sequence[str] = ()
    extras: Sequence[Extras | None] = ()
    locs_are_plain: bool = False
    digests: Sequence[int] = ()
    recognized: RecognizedEntries | None = None
    places: Sequence[int] | None = None

    def where(self, mask: Sequence[bool]) -> RawEntries:
        """The entries for which the mask is true, in their order."""
        return RawEntries(
            locs=list(compress(self.locs, mask)),
            lastmods=list(compress(self.lastmods, mask)),
            changefreqs=list(compress(self.changefreqs, mask)),
            priorities=list(compress(self.priorities, mask)),
            extras=list(compress(self.extras, mask)),
        )


@dataclass(slots=True)
class ReadResult:
    """What was read from one chunk of a document. An `error` ends it after these entries.

    If entries are `recognized`, the others are at these `places` of the chunk. A result of a reader
    process has only `encoded` entries.
    """

    columns: EntryColumns = field(default_factory=EntryColumns)
    children: list[ChildLink] = field(default_factory=list)
    error: ScanError | None = None
    recognized: RecognizedEntries = field(default_factory=RecognizedEntries)
    places: Sequence[int] = ()
    encoded: EncodedEntries | None = None

    @property
    def entry_count(self) -> int:
        """How many entries were read or recognized."""
        return len(self.columns) + len(self.recognized)

    def limit_entries(self, count: int) -> None:
        """Keep no more than the first `count` entries."""
        if count < self.entry_count:
            read = bisect_left(self.places, count) if self.recognized else count
            self.columns = self.columns.head(read)
            self.recognized = self.recognized.head(count - len(self.columns))
