"""`lastmod` as it was listed, where that tells more than the time that was read from it.

A full timestamp tells nothing more: its offset aside, it is the same instant. A date without time,
a year, a time without zone or a text that is not a date does. How it is stored: decision 0016.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache

from siteatlas.scanner.tally import storable_text

MAX_TEXT_CHARS = 200
CACHED_TEXTS = 32_768
# Hours, minutes, seconds and a zone, as ISO 8601 and RFC 2822 write them.
FULL_TIME = re.compile(
    r".*?\d\d:\d\d:\d\d(?:[.,]\d+)?\s*(?:[Zz]|UTC?|GMT|[ECMP][SD]T|[+-]\d\d:?\d\d)", re.ASCII
)
FULL_AT_MIDNIGHT = ""
# Whole columns of one of the two most common forms, one value a line.
DAYS = re.compile(r"(?:\d{4}-\d\d-\d\d\n)*", re.ASCII)
UTC_TIMES = re.compile(r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|\+00:00)\n)*", re.ASCII)
DAY_CHARS, Z_CHARS, OFFSET_CHARS = 10, 20, 25


def listed_text(lastmod: datetime | None, listed: str) -> str | None:
    """The text as listed; None where there is none, or where it is a full timestamp."""
    if not listed:
        return None
    if lastmod is None:
        return storable_text(listed.strip(), MAX_TEXT_CHARS) or None
    if _is_day(listed):
        return listed
    return None if _is_usual_time(listed) else _short_text(listed)


def listed_texts(lastmods: Sequence[datetime | None], listed: Sequence[str]) -> list[str | None]:
    """The same for a column."""
    lines = _lines_of_dates(lastmods, listed)
    if lines and UTC_TIMES.fullmatch(lines):
        return [None] * len(listed)
    if lines and DAYS.fullmatch(lines):
        return list(listed)
    return list(map(listed_text, lastmods, listed))


def stored_text(lastmod: datetime | None, listed: str) -> str | None:
    """What is stored beside a date: None where the date alone gives the text back.

    Midnight stands for a date without time, which is the most common form and so costs nothing.
    A full timestamp at midnight is marked by the empty text.
    """
    if not listed or (lastmod is not None and _is_day(listed)):
        return None
    text = listed_text(lastmod, listed)
    if text is None:
        return FULL_AT_MIDNIGHT if lastmod is not None and _is_midnight(lastmod) else None
    return None if lastmod is not None and _is_day(text) else text


def stored_texts(lastmods: Sequence[datetime | None], listed: Sequence[str]) -> list[str | None]:
    """The same for a column."""
    if not any(listed) or _are_usual(_lines_of_dates(lastmods, listed)):
        return [None] * len(listed)
    return list(map(stored_text, lastmods, listed))


def _lines_of_dates(lastmods: Sequence[datetime | None], listed: Sequence[str]) -> str:
    """The column as lines, for one match over all of it; empty unless each value is a date."""
    if not all(lastmods):
        return ""
    lines = "\n".join(listed) + "\n"
    return lines if lines.count("\n") == len(listed) else ""


def _are_usual(lines: str) -> bool:
    """Whether each date alone gives its text back."""
    if not lines:
        return False
    if "T00:00:00" not in lines and UTC_TIMES.fullmatch(lines):
        return True
    return DAYS.fullmatch(lines) is not None


def restored_text(lastmod: datetime | None, stored: str | None) -> str | None:
    """The text as listed from what is stored; None where it was a full timestamp, or nothing."""
    if stored is not None:
        return stored or None
    return f"{lastmod:%Y-%m-%d}" if lastmod is not None and _is_midnight(lastmod) else None


def _is_midnight(moment: datetime) -> bool:
    return not (moment.hour or moment.minute or moment.second or moment.microsecond)


def _is_day(listed: str) -> bool:
    """Whether a text that was read as a date is one without time."""
    return (
        len(listed) == DAY_CHARS
        and listed[4] == "-"
        and listed[7] == "-"
        and listed[-1].isdigit()  # not a blank behind a day of one digit
    )


def _is_usual_time(listed: str) -> bool:
    """The two most common timestamps by a glance, since sites with many dates have many of them."""
    size = len(listed)
    return (size == Z_CHARS and listed[16] == ":" and listed[19] == "Z") or (
        size == OFFSET_CHARS and listed[16] == ":" and listed[19] in "+-" and listed[22] == ":"
    )


@lru_cache(CACHED_TEXTS)
def _short_text(listed: str) -> str | None:
    text = listed.strip()
    return None if FULL_TIME.fullmatch(text) else storable_text(text, MAX_TEXT_CHARS) or None
