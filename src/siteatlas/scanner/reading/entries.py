"""Turns raw entries into columns: validates URLs, parses dates, priorities and frequencies.

Formats hand over `RawEntries`; `build_columns` reads them a column at a time, which is several
times faster than one by one, and counts problems in the document's `Tally`. Values repeat a lot, so
each kind has a bounded cache. URLs stay as listed; relative ones are resolved against the address
of the document. `lastmod` is also kept as listed where that says more than the time parsed from it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from itertools import compress
from typing import Any, Generic, TypeVar

from siteatlas.errors import ScanError
from siteatlas.net.address import bare_host, is_valid_authority, resolve_url
from siteatlas.scanner.events import (
    ChildLink,
    EncodedEntries,
    EntryColumns,
    ProblemSample,
)
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.text import CONTROLS, REPLACEMENT, SURROGATES, truncated

# Trimmed around a URL: the white space of XML, and the other blanks of Unicode. `str.strip` and the
# class for it in patterns know more, among them control characters: a URL that has one of those is
# refused, not rewritten.
XML_WHITE_SPACE = " \t\r\n"
WHITE_SPACE = (
    XML_WHITE_SPACE
    + "\u00a0\u1680\u2028\u2029\u202f\u205f\u3000"
    + "".join(map(chr, range(0x2000, 0x200B)))
)
ANY_XML_WHITE_SPACE = f"[{XML_WHITE_SPACE}]*+"
MAX_URL_CHARS = 8192
USUAL_URL_CHARS = 2048
MAX_DATE_CHARS = 64
MAX_TEXT_CHARS = 200
MAX_SAMPLES = 20
YEARS = range(1970, 2101)

Extras = dict[str, Any]
Value = TypeVar("Value")
# Counts a problem of the current entries at these indexes, with samples of the first. The values
# of a column are shown in the samples.
NoteEntries = Callable[[ProblemCode, Sequence[int], Sequence[str] | None], None]


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

    A result of a reader process has only `encoded` entries.
    """

    columns: EntryColumns = field(default_factory=EntryColumns)
    children: list[ChildLink] = field(default_factory=list)
    error: ScanError | None = None
    encoded: EncodedEntries | None = None


@dataclass(slots=True)
class Tally:
    """Problems of one document by code; `skipped` entries are not part of its columns.

    `entries` are those that were read before the current ones. `extras_left` is how many characters
    of extras the entry being read may still have.
    """

    problems: Counter[ProblemCode] = field(default_factory=Counter)
    samples: dict[ProblemCode, list[ProblemSample]] = field(default_factory=dict)
    entries: int = 0
    skipped: int = 0
    extras_left: int = 0
    judges_left_out: bool = False

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
            entry = None if place is None else self.entries + place + 1
            sample = ProblemSample(
                None if url is None else truncated(url.strip(), 500),
                None if value is None else truncated(value.strip(), 200),
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

    def noting(self, urls: Sequence[str], places: Sequence[int]) -> NoteEntries:
        """What counts problems of these kept entries, which have these places among all."""

        def note(code: ProblemCode, indexes: Sequence[int], values: Sequence[str] | None) -> None:
            for index in indexes[:MAX_SAMPLES]:
                value = None if values is None else values[index]
                self.note(code, url=urls[index], value=value, place=places[index])
            if len(indexes) > MAX_SAMPLES:
                self.note(code, len(indexes) - MAX_SAMPLES)

        return note

    def wants_sample(self, code: ProblemCode) -> bool:
        """Whether one more sample of this problem would be kept."""
        return len(self.samples.get(code, ())) < MAX_SAMPLES

    def counts(self) -> dict[str, int]:
        return {code.value: count for code, count in self.problems.items()}

    def kept_samples(self) -> dict[str, tuple[ProblemSample, ...]]:
        """The samples by code."""
        return {code.value: tuple(samples) for code, samples in self.samples.items()}


def build_columns(raw: RawEntries, tally: Tally, base: str | None = None) -> EntryColumns:
    """The columns of the entries that can be kept; the others are counted in the tally.

    `base` is the address of the document; without one, relative URLs cannot be kept.
    """
    if not raw.locs:
        return EntryColumns()
    plain = raw.locs_are_plain and _have_valid_hosts(raw.locs)
    columns = _read_columns(raw, tally) if plain else _judged_columns(raw, tally, base)
    tally.entries += len(raw.locs)
    return columns


def _judged_columns(raw: RawEntries, tally: Tally, base: str | None) -> EntryColumns:
    urls = raw.locs = [loc.strip(WHITE_SPACE) for loc in raw.locs]
    if all(map(is_plain_url, urls)) and _have_valid_hosts(urls):
        return _read_columns(raw, tally)
    faults = list(map(fault_of_url, urls))
    if base is not None and ProblemCode.RELATIVE_URL in faults:
        _resolve(urls, faults, base, tally)
    if faults.count(None) == len(faults):
        return _read_columns(raw, tally)
    for place, fault in enumerate(faults):
        if fault is not None:
            tally.skip(fault, url=urls[place] or None, place=place)
    good = [fault is None for fault in faults]
    if tally.judges_left_out:
        left_out = [not fine for fine in good]
        _read_columns(raw.where(left_out), tally, list(compress(range(len(urls)), left_out)))
    return _read_columns(raw.where(good), tally, list(compress(range(len(urls)), good)))


def _resolve(urls: list[str], faults: list[ProblemCode | None], base: str, tally: Tally) -> None:
    """Replace the relative URLs by full ones, and their faults by what is wrong with those."""
    relative = ProblemCode.RELATIVE_URL
    for index, fault in enumerate(faults):
        if fault is relative:
            url = resolve_url(with_scheme(urls[index], base), base)
            if url is None:
                faults[index] = ProblemCode.BAD_URL
            else:
                tally.note(relative, url=url, value=urls[index], place=index)
                urls[index], faults[index] = url, fault_of_url(url)


def with_scheme(url: str, base: str | None) -> str:
    """A URL, with the scheme of the base if it begins with the host of that instead of its own."""
    scheme, _, rest = (base or "").partition("://")
    hosts = (bare_host(re.split("[/?#:]", text, maxsplit=1)[0].lower()) for text in (url, rest))
    return f"{scheme}://{url}" if rest and len(set(hosts)) == 1 else url


def _read_columns(
    raw: RawEntries, tally: Tally, places: Sequence[int] | None = None
) -> EntryColumns:
    urls = list(raw.locs)
    note = tally.noting(urls, range(len(urls)) if places is None else places)
    if urls and max(map(len, urls)) > USUAL_URL_CHARS:
        long = [index for index, url in enumerate(urls) if len(url) > USUAL_URL_CHARS]
        note(ProblemCode.URL_LONG, long, None)
    absent = [None] * len(urls)

    def column(kind: ValueColumn[Value], raws: Sequence[str]) -> list[Value | None]:
        return kind.column(raws, note) if raws else [*absent]

    lastmods: list[datetime | None] = [*absent]
    lastmod_texts: list[str] = []
    if raw.lastmods:
        lastmods, lastmod_texts = _read_dates(raw.lastmods, note)
    return EntryColumns(
        urls=urls,
        lastmods=lastmods,
        changefreqs=column(_frequency_column, raw.changefreqs),
        priorities=column(_priority_column, raw.priorities),
        extras=list(raw.extras) if raw.extras else [*absent],
        lastmod_texts=lastmod_texts,
    )


def _read_dates(raws: Sequence[str], note: NoteEntries) -> tuple[list[datetime | None], list[str]]:
    if not are_utc_times(raws):
        return lastmod_column.column(raws, note), list(raws)
    dates = lastmod_column.times(raws, note)
    return dates, telling_times(raws) if all(dates) else list(raws)


# The ordinary URL, for one match over hundreds of entries; must stay narrower than
# `_is_accepted`. Its host is judged apart.
PLAIN_URL = r"https?://[0-9A-Za-z.:_~%\[\]-]{1,255}+(?:[/?#][!-;=?-~]{0,7900}+)?"

is_plain_url = re.compile(PLAIN_URL).fullmatch
_is_accepted = re.compile(
    rf"[hH][tT][tT][pP][sS]?://[^/?#\\@\s{CONTROLS}{REPLACEMENT}{SURROGATES}]++"
    rf"(?:[/?#\\][^{CONTROLS}{REPLACEMENT}{SURROGATES}]*+)?"
).fullmatch
_has_bad_unicode = re.compile(f"[{REPLACEMENT}{SURROGATES}]").search
_has_control = re.compile(f"[{CONTROLS}]").search
_has_scheme = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:").match
# What is left of a template, of a scheme or of a link within a page.
_is_no_address = re.compile(r"[#{\[<]|\$\{|%7B%7B|https?[;,]?//", re.IGNORECASE).match
_has_credentials = re.compile(r"https?://[^/?#\\]*@", re.IGNORECASE).match
_match_origin = re.compile(r"https?://([^/?#\\]*)", re.IGNORECASE).match


def fault_of_url(url: str) -> ProblemCode | None:
    """Why a trimmed loc cannot be kept, as a code; None for a URL that can."""
    if len(url) <= MAX_URL_CHARS and _is_accepted(url):
        return None if _has_valid_host(url) else ProblemCode.BAD_URL
    if not url:
        return ProblemCode.LOC_MISSING
    if len(url) > MAX_URL_CHARS:
        return ProblemCode.URL_TOO_LONG
    if _has_control(url):
        return ProblemCode.CONTROL_CHAR
    if _has_bad_unicode(url):
        return ProblemCode.BAD_UNICODE
    if _has_credentials(url):
        return ProblemCode.CREDENTIALS
    is_bad = _has_scheme(url) or _is_no_address(url)
    return ProblemCode.BAD_URL if is_bad else ProblemCode.RELATIVE_URL


def _has_valid_host(url: str) -> bool:
    origin = _match_origin(url)
    return origin is not None and is_valid_authority(origin[1])


def _have_valid_hosts(urls: Sequence[str]) -> bool:
    """Whether all hosts of plain URLs are valid; the pages of one site cost two searches."""
    origin = _match_origin(urls[0]) if urls else None
    if origin is None or not is_valid_authority(origin[1]):
        return not urls
    own = f"{origin[0]}/"
    if all_begin_with(own, urls):
        return True
    return all(_has_valid_host(url) for url in urls if not url.startswith(own))


def all_begin_with(prefix: str, urls: Sequence[str]) -> bool:
    """Whether all of these URLs, of which there is at least one, begin with a prefix.

    What lies between two texts in their order begins as both of them do.
    """
    return min(urls).startswith(prefix) and max(urls).startswith(prefix)


class ValueColumn(dict[str, Value | None], Generic[Value]):
    """Reads one kind of value; a value that cannot be read is None and counted as a problem."""

    def __init__(self, read: Callable[[str], Value | None], problem: ProblemCode) -> None:
        super().__init__()
        self._read = read
        self._problem = problem

    def __missing__(self, raw: str) -> Value | None:
        if len(self) >= 32_768:
            self.clear()
        text = raw.strip()
        value = self._read(text) if 0 < len(text) <= MAX_DATE_CHARS else None
        if len(raw) <= MAX_DATE_CHARS:
            self[raw] = value
        return value

    def column(self, raws: Sequence[str], note: NoteEntries) -> list[Value | None]:
        """The values of a whole column.

        Hundreds of entries cost a few calls into C and no Python call for each (decision 0007).
        """
        # In most documents all entries have the same priority and frequency. Comparing the first
        # with the last is cheap, and avoids most calls of `count` for columns of dates.
        if raws[0] == raws[-1] and raws.count(raws[0]) == len(raws):
            values = [self[raws[0]]] * len(raws)
        else:
            # A known value is found by the dict itself; only a new one reaches `__missing__`.
            values = list(map(self.__getitem__, raws))
        # An absent value is "" and read as None, so with equal counts nothing was unreadable.
        empty = values.count(None)
        if empty and empty != raws.count(""):
            pairs = enumerate(zip(raws, values, strict=True))
            wrong = [index for index, (raw, value) in pairs if value is None and raw.strip()]
            note(self._problem, wrong, raws)
        return values


class DateColumn(ValueColumn[datetime]):
    """Reads dates and notes those in the future."""

    def column(self, raws: Sequence[str], note: NoteEntries) -> list[datetime | None]:
        values = super().column(raws, note)
        _note_future(values, raws, note)
        return values

    def times(self, raws: Sequence[str], note: NoteEntries) -> list[datetime | None]:
        """The dates of a column of timestamps in UTC; cached only if most of them are repeated."""
        # One date of eight tells whether most of them are repeated.
        sample = raws[::8]
        times = None if len(set(sample)) < len(sample) / 2 else _read_times(raws)
        if times is None:
            return self.column(raws, note)
        _note_future(times, raws, note)
        return [*times]


def _note_future(dates: Sequence[datetime | None], raws: Sequence[str], note: NoteEntries) -> None:
    limit = datetime.now(UTC) + timedelta(days=1)
    # One look at the latest: a look at each date would cost more than reading it.
    if max(filter(None, dates), default=limit) > limit:
        pairs = enumerate(dates)
        ahead = [index for index, date in pairs if date is not None and date > limit]
        note(ProblemCode.LASTMOD_FUTURE, ahead, raws)


def read_date(text: str) -> datetime | None:
    """A W3C, ISO 8601 or RFC 2822 date as UTC; None for anything else. No zone means UTC.

    A date with a zone, as XML Schema allows it, begins at midnight in that zone.
    """
    moment = _iso_date(text) or _lenient_date(text)
    if moment is None:
        return None
    if moment.tzinfo is not UTC:
        try:
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except OverflowError:
            return None
    return moment if moment.year in YEARS else None


def _read_times(texts: Sequence[str]) -> list[datetime] | None:
    try:
        times = list(map(datetime.fromisoformat, texts))
    except ValueError:
        return None
    return times if min(times).year in YEARS and max(times).year in YEARS else None


def _iso_date(text: str) -> datetime | None:
    # `fromisoformat` takes any character for the separator, also the sign of a zone behind a date.
    if text[10:11] in {"+", "-"} or text[8:9] in {"+", "-"}:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


_match_lenient_date = re.compile(
    r"(\d{4})(?:[-/](\d\d?)(?:[-/](\d\d?))?)?"
    r"(?:[Tt ]\s*(\d\d?):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?"
    r"\s*(?:([Zz]|UTC|GMT)|([+-])(\d\d):?(\d\d)?)?",
    re.ASCII,
).fullmatch


def _lenient_date(text: str) -> datetime | None:
    match = _match_lenient_date(text)
    try:
        if match is None:
            return parsedate_to_datetime(text)
        year, month, day, hour, minute, second, fraction, _, sign, zone_h, zone_m = match.groups()
        zone = f"{sign}{zone_h}:{zone_m or '00'}" if sign else "+00:00"
        return datetime.fromisoformat(
            f"{year}-{int(month or 1):02}-{int(day or 1):02}T{int(hour or 0):02}:{minute or '00'}"
            f":{second or '00'}.{(fraction or '0')[:6]:0<6}{zone}"
        )
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _read_priority(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return round(value, 6) + 0.0 if 0.0 <= value <= 1.0 else None


def _read_frequency(text: str) -> str | None:
    word = text.lower()
    known = word in {"always", "hourly", "daily", "weekly", "monthly", "yearly", "never"}
    return word if known else None


lastmod_column = DateColumn(read_date, ProblemCode.LASTMOD_INVALID)
_priority_column = ValueColumn(_read_priority, ProblemCode.PRIORITY_INVALID)
_frequency_column = ValueColumn(_read_frequency, ProblemCode.CHANGEFREQ_INVALID)

# The most common form, for a look at a whole column.
DAY_FORM = b"0000-00-00\n"
DIGITS_AS_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)

# Hours, minutes, seconds and a zone, as ISO 8601 and RFC 2822 write them.
_is_full_time = re.compile(
    r".*?\d\d:\d\d:\d\d(?:[.,]\d+)?\s*(?:[Zz]|UTC?|GMT|[ECMP][SD]T|[+-]\d\d:?\d\d)", re.ASCII
).fullmatch


def are_utc_times(listed: Sequence[str]) -> bool:
    """Whether all values of a column are timestamps in UTC of the same usual form."""
    if _have_form(listed, b"0000-00-00T00:00:00Z\n"):
        return True
    # The form allows any offset, as digits are not compared.
    with_offset = b"0000-00-00T00:00:00+00:00\n"
    return _have_form(listed, with_offset) and "".join(listed).count("+00:00") == len(listed)


def telling_times(listed: Sequence[str]) -> list[str]:
    """Timestamps, "" for those without additional information; empty if none has any.

    For timestamps in UTC that could be read: only midnight may be taken for a date without time.
    """
    joined = "".join(listed)
    midnight, end_of_day = "T00:00:00", "T24:00:00"
    if midnight not in joined and end_of_day not in joined:
        return []
    return [text if midnight in text or end_of_day in text else "" for text in listed]


def listed_text(lastmod: datetime | None, listed: str) -> str | None:
    """The text as listed; None where there is none, or where it is a full timestamp.

    A full timestamp tells nothing more: its offset aside, it is the same instant. A date without
    time, a year, a time without zone or a text that is not a date does. How it is stored: decision
    0016.
    """
    if not listed:
        return None
    if lastmod is None:
        return truncated(listed.strip(), MAX_TEXT_CHARS) or None
    if _is_day(listed):
        return listed
    if _is_usual_time(listed):
        return None
    return _cached_text(listed) if len(listed) <= 64 else _short_text(listed)


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
        return "" if lastmod is not None and _is_midnight(lastmod) else None
    return None if lastmod is not None and _is_day(text) else text


def stored_texts(lastmods: Sequence[datetime | None], listed: Sequence[str]) -> list[str | None]:
    """The results of `stored_text` for a column of entries."""
    if not any(listed) or (all(lastmods) and _have_form(listed, DAY_FORM)):
        return [None] * len(listed)
    return list(map(stored_text, lastmods, listed))


def restored_text(lastmod: datetime | None, stored: str | None) -> str | None:
    """The text as listed from what is stored; None where it was a full timestamp, or nothing."""
    if stored is not None:
        return stored or None
    return f"{lastmod:%Y-%m-%d}" if lastmod is not None and _is_midnight(lastmod) else None


def _have_form(listed: Sequence[str], form: bytes) -> bool:
    """Whether the values of a column differ from this form, which is one line, in digits only."""
    if not listed or len(listed[0]) != len(form) - 1:
        return False
    lines = "\n".join(listed) + "\n"
    return lines.isascii() and lines.encode().translate(DIGITS_AS_ZEROS) == form * len(listed)


def _is_midnight(moment: datetime) -> bool:
    return not (moment.hour or moment.minute or moment.second or moment.microsecond)


def _is_day(listed: str) -> bool:
    return (
        len(listed) == 10
        and listed[4] == "-"
        and listed[7] == "-"
        and listed[-1].isdigit()  # not a blank behind a day of one digit
    )


def _is_usual_time(listed: str) -> bool:
    size = len(listed)
    return (size == 20 and listed[16] == ":" and listed[19] == "Z") or (
        size == 25 and listed[16] == ":" and listed[19] in "+-" and listed[22] == ":"
    )


def _short_text(listed: str) -> str | None:
    text = listed.strip()
    return None if _is_full_time(text) else truncated(text, MAX_TEXT_CHARS) or None


_cached_text = lru_cache(32_768)(_short_text)
