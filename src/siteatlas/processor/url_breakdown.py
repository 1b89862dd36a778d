"""Counts the entries of a document by section and by the month of their date, while it is read.

The section of a URL is the first segment of its path, such as `/blog/`, if anything follows it; all
other URLs are in the section `/`. This runs for every listed URL: a column is sorted, and each
section or month is then found as a run. Of a document with very many sections, which gain nothing
from that, one URL of sixteen is looked at (decision 0046).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeVar

from siteatlas.storage.statements.url_rows import MICROSECOND, NO_DATE, POSTGRES_EPOCH

ROOT = "/"
# The character behind the slash: the end of all URLs that begin with a section.
BEHIND_SLASH = "0"
# Of sections whose names are too long to be kept.
UNNAMED = ""
MAX_SECTIONS = 200
MAX_SECTION_CHARS = 100
MAX_MONTHS = 240
# Sections of a document beyond which their sizes are estimated.
MANY_SECTIONS = 500
SAMPLED = 16
# More names are not held while a document is read.
MAX_NAMES = 5_000
KEPT_DAYS = 1_000
DAY = timedelta(days=1) // MICROSECOND

T = TypeVar("T")


class UrlBreakdown:
    """The counts of one document; those of sections are exact up to `MANY_SECTIONS`."""

    def __init__(self) -> None:
        self._sections = BoundedCounts()
        self._months = BoundedCounts()
        self._undated = 0

    def add(
        self, urls: Sequence[str], dates: Sequence[int], repeated: Collection[int] = ()
    ) -> None:
        """Count listed entries, without those at the indexes that repeat a URL."""
        if repeated:
            urls, dates = _without(urls, set(repeated)), _without(dates, set(repeated))
        self._add_sections(urls)
        months, undated = count_months(dates)
        self._months.add(months)
        self._undated += undated

    def stored(self) -> dict[str, Any]:
        """The counts as they are stored with the document; empty if it listed nothing."""
        sections, other = self._sections.largest(MAX_SECTIONS)
        months, other_months = self._months.largest(MAX_MONTHS)
        if not (sections or other):
            return {}
        return {
            "sections": sections,
            "other": other,
            "months": months,
            "other_months": other_months,
            "undated": self._undated,
        }

    def _add_sections(self, urls: Sequence[str]) -> None:
        """Count the sections of a column, or estimate them; their sum is always exact."""
        if len(self._sections) < MANY_SECTIONS:
            self._sections.add(count_sections(urls))
            return
        sample = count_sections(urls[SAMPLED - 1 :: SAMPLED])
        estimated = {section: count * SAMPLED for section, count in sample.items()}
        self._sections.add(estimated, rest=len(urls) % SAMPLED)


class BoundedCounts:
    """Counts by name. Beyond `MAX_NAMES`, the smallest ones are counted together."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._rest = 0

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, counts: Mapping[str, int], *, rest: int = 0) -> None:
        """Add counts to those so far; `rest` has no name."""
        held = self._counts
        for name, count in counts.items():
            held[name] = held.get(name, 0) + count
        self._rest += rest + held.pop(UNNAMED, 0)
        if len(held) > MAX_NAMES:
            self._counts, self._rest = self.largest(MAX_NAMES // 2)

    def largest(self, limit: int) -> tuple[dict[str, int], int]:
        """The largest counts, of equal ones the first by name, and the sum of all others."""
        items = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        return dict(items[:limit]), self._rest + sum(count for _, count in items[limit:])


def _without(column: Sequence[T], indexes: set[int]) -> list[T]:
    """A column without the values at these indexes."""
    return [value for index, value in enumerate(column) if index not in indexes]


def count_sections(urls: Sequence[str]) -> dict[str, int]:
    """The number of URLs by section; `UNNAMED` has those of sections with long names."""
    ordered = sorted(urls)
    start = _path_start(ordered[0]) if ordered else 0
    if not start or not ordered[-1].startswith(ordered[0][:start]):
        return Counter(map(section_of, urls))
    counts: dict[str, int] = {}
    first = at_root = 0
    while first < len(ordered):
        url = ordered[first]
        # The last character is not searched: nothing follows it.
        end = url.find("/", start, -1)
        if end < 0:
            at_root += 1
            first += 1
            continue
        behind = bisect_left(ordered, url[:end] + BEHIND_SLASH, first)
        name = _section_name(url[start : end + 1])
        counts[name] = counts.get(name, 0) + behind - first
        first = behind
    if at_root:
        counts[ROOT] = counts.get(ROOT, 0) + at_root
    return counts


def section_of(url: str) -> str:
    """The section of one URL."""
    start = _path_start(url) or len(url)
    return _section_name(url[start : url.find("/", start, -1) + 1])


def _path_start(url: str) -> int:
    """The index behind the first slash of the path of a URL; 0 if it has none."""
    return url.find("/", url.find("://") + 3) + 1


def _section_name(text: str) -> str:
    """The section for the text from the first slash of a URL's path to the second one.

    That one may belong to a query or a fragment.
    """
    if len(text) <= 1 or "?" in text or "#" in text:
        return ROOT
    return f"/{text}" if len(text) < MAX_SECTION_CHARS else UNNAMED


def count_months(dates: Sequence[int]) -> tuple[dict[str, int], int]:
    """The number of dates by month in UTC, such as `2026-11`, and of entries without a date."""
    ordered = sorted(dates)
    counts: dict[str, int] = {}
    first = undated = bisect_right(ordered, NO_DATE)
    while first < len(ordered):
        name, end = _month_of_day(ordered[first] // DAY)
        behind = bisect_left(ordered, end, first)
        counts[name] = behind - first
        first = behind
    return counts, undated


@lru_cache(KEPT_DAYS)
def _month_of_day(day: int) -> tuple[str, int]:
    """The month of a day, counted from 2000, and the first date after the month."""
    moment = POSTGRES_EPOCH + timedelta(days=day)
    days = monthrange(moment.year, moment.month)[1]
    return f"{moment.year:04}-{moment.month:02}", (day - moment.day + 1 + days) * DAY
