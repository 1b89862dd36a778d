"""`lastmod` as listed, where that has more information than the time parsed from it.

A full timestamp tells nothing more: its offset aside, it is the same instant. A date without time,
a year, a time without zone or a text that is not a date does. How it is stored: decision 0016.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache

from siteatlas.safe_text import truncated

MAX_TEXT_CHARS = 200
CACHED_TEXTS, MAX_CACHED_CHARS = 32_768, 64
# Hours, minutes, seconds and a zone, as ISO 8601 and RFC 2822 write them.
FULL_TIME = re.compile(
    r".*?\d\d:\d\d:\d\d(?:[.,]\d+)?\s*(?:[Zz]|UTC?|GMT|[ECMP][SD]T|[+-]\d\d:?\d\d)", re.ASCII
)
FULL_AT_MIDNIGHT = ""
# The most common forms, for a look at a whole column.
DAY_FORM = b"0000-00-00\n"
TIME_FORMS = (b"0000-00-00T00:00:00+00:00\n", b"0000-00-00T00:00:00Z\n")
DIGITS_AS_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
MIDNIGHT, END_OF_DAY = "T00:00:00", "T24:00:00"
DAY_CHARS, Z_CHARS, OFFSET_CHARS = 10, 20, 25


def are_utc_times(listed: Sequence[str]) -> bool:
    """Whether all values of a column are timestamps in UTC of the same usual form."""
    with_offset, with_z = TIME_FORMS
    if _have_form(listed, with_z):
        return True
    # The form allows any offset, as digits are not compared.
    return _have_form(listed, with_offset) and "".join(listed).count("+00:00") == len(listed)


def telling_times(listed: Sequence[str]) -> list[str]:
    """Timestamps, "" for those without additional information; empty if none has any.

    For timestamps in UTC that could be read: only midnight may be taken for a date without time.
    """
    joined = "".join(listed)
    if MIDNIGHT not in joined and END_OF_DAY not in joined:
        return []
    return [text if MIDNIGHT in text or END_OF_DAY in text else "" for text in listed]


def listed_text(lastmod: datetime | None, listed: str) -> str | None:
    """The text as listed; None where there is none, or where it is a full timestamp."""
    if not listed:
        return None
    if lastmod is None:
        return truncated(listed.strip(), MAX_TEXT_CHARS) or None
    if _is_day(listed):
        return listed
    if _is_usual_time(listed):
        return None
    return _cached_text(listed) if len(listed) <= MAX_CACHED_CHARS else _short_text(listed)


def listed_texts(lastmods: Sequence[datetime | None], listed: Sequence[str]) -> list[str | None]:
    """The results of `listed_text` for a column of entries."""
    if not any(listed):
        return [None] * len(listed)
    if all(lastmods) and are_utc_times(listed):
        return [None] * len(listed)
    if all(lastmods) and _have_form(listed, DAY_FORM):
        return list(listed)
    return list(map(listed_text, lastmods, listed))


def stored_text(lastmod: datetime | None, listed: str) -> str | None:
    """What is stored in addition to a date: None if the text can be derived from the date.

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
    """The results of `stored_text` for a column of entries."""
    if not any(listed) or (all(lastmods) and _have_form(listed, DAY_FORM)):
        return [None] * len(listed)
    return list(map(stored_text, lastmods, listed))


def _have_form(listed: Sequence[str], form: bytes) -> bool:
    """Whether the values of a column differ from this form, which is one line, in digits only."""
    if not listed or len(listed[0]) != len(form) - 1:
        return False
    lines = "\n".join(listed) + "\n"
    return lines.isascii() and lines.encode().translate(DIGITS_AS_ZEROS) == form * len(listed)


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
    """Whether a text has one of the two most common timestamp forms; a quick check."""
    size = len(listed)
    return (size == Z_CHARS and listed[16] == ":" and listed[19] == "Z") or (
        size == OFFSET_CHARS and listed[16] == ":" and listed[19] in "+-" and listed[22] == ":"
    )


def _short_text(listed: str) -> str | None:
    """A lastmod as listed, truncated; None if it is empty or a full timestamp; uncached."""
    text = listed.strip()
    return None if FULL_TIME.fullmatch(text) else truncated(text, MAX_TEXT_CHARS) or None


_cached_text = lru_cache(CACHED_TEXTS)(_short_text)
