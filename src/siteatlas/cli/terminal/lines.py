"""Changes and problems as lines for people: signs, details, and what a problem code means."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from siteatlas.cli.terminal.output import cell_text, counted
from siteatlas.cli.terminal.tables import relative_time, shorten_middle
from siteatlas.scanner.events import ProblemSample
from siteatlas.scanner.problem_codes import meaning_of

if TYPE_CHECKING:
    # `siteatlas scan` prints problems with this module, and runs without the database.
    from siteatlas.catalog.change_feed import ChangeView

MIN_ADDRESS_WIDTH = 16
INDENT = "      "
# Changed lines of a robots.txt that are shown, and the lines before them that name both versions.
MAX_ROBOTS_LINES = 6
DIFF_HEADER_LINES = 2
EVENT_SIGN, WARNING_SIGN = "*", "!"
# Sign, colour and, where the sign does not say it, words.
URL_KINDS = {
    "added": ("+", "green", ""),
    "removed": ("-", "red", ""),
    "changed": ("~", "yellow", ""),
    "moved": (">", "cyan", ""),
    "back": ("+", "green", "back"),
    "expired": ("-", "dim", "expired"),
    "duplicate_added": ("=", "dim", "also in another sitemap"),
    "duplicate_removed": ("=", "dim", "still in another sitemap"),
}
UNKNOWN_KIND = ("?", "", "")
UNKNOWN_SITEMAP = "an unknown sitemap"
WARNINGS = {"removals_held", "scan_failed", "lastmod_distrusted"}
# Why a document is in the way of removals.
HOLD_REASONS = {
    "unread": "could list them, but was not read",
    "vanished": "listed them, and is no longer found",
    "empty": "listed them, and lists nothing any more",
    "unconfirmed": "listed them; a later scan has to confirm that it no longer does",
}


@dataclass(frozen=True, slots=True)
class StyledLine:
    """A line of text and its colour on a terminal."""

    text: str
    style: str = ""


class ChangeLines:
    """Writes events in the order of the feed; each scan has a heading at its first event.

    With a `width`, addresses are shortened to fit a terminal and times are relative, or with
    `clock`, for lines that stay on the terminal while time goes on, times of the day.
    """

    def __init__(self, width: int | None = None, *, clock: bool = False) -> None:
        self._width = width
        self._clock = clock
        self._seq: int | None = None

    def of(self, event: ChangeView) -> Iterator[StyledLine]:
        """The lines of the next event."""
        if event.seq != self._seq:
            if self._seq is not None:
                yield StyledLine("")
            self._seq = event.seq
            yield StyledLine(self._heading(event), "bold")
        yield from self._url_lines(event) if event.url is not None else self._event_lines(event)

    def _heading(self, event: ChangeView) -> str:
        """The first line of a scan in the feed: its site, its time, its numbers."""
        parts = [event.domain, self._time(event.not_after), f"sequence number {event.seq}"]
        if event.scan_id is not None:
            parts.append(f"scan {event.scan_id}")
        return ", ".join(part for part in parts if part)

    def _time(self, moment: datetime | None) -> str:
        """When a change was seen: relative or by the clock on a terminal, absolute elsewhere."""
        if moment is None or self._width is None:
            return "" if moment is None else cell_text(moment)
        now = datetime.now(UTC)
        return _clock_time(moment, now) if self._clock else relative_time(moment, now)

    def _url_lines(self, event: ChangeView) -> Iterator[StyledLine]:
        """The change of a URL; what differs, or where it is listed, follows on its own line."""
        sign, style, words = URL_KINDS.get(event.kind, UNKNOWN_KIND)
        unproved = event.evidence not in (None, "complete")
        remarks = [words] if words else []
        remarks += [str(event.evidence)] if unproved else []
        after = f"  ({', '.join(remarks)})" if remarks else ""
        yield StyledLine(self._fitted(f"  {sign} ", event.url or "", after), style)
        for detail in _url_details(event):
            yield StyledLine(self._fitted(INDENT, detail))

    def _event_lines(self, event: ChangeView) -> Iterator[StyledLine]:
        is_warning = event.kind in WARNINGS
        sign = WARNING_SIGN if is_warning else EVENT_SIGN
        subject = event.sitemap or ""
        style = "yellow" if is_warning else ""
        yield StyledLine(self._fitted(f"  {sign} {event.kind} ", subject).rstrip(), style)
        for detail in _event_details(event, event.data or {}):
            yield StyledLine(self._fitted(INDENT, detail))

    def _fitted(self, before: str, middle: str, after: str = "") -> str:
        if self._width is None:
            return before + middle + after
        room = self._width - len(before) - len(after)
        return before + shorten_middle(middle, max(room, MIN_ADDRESS_WIDTH)) + after


def _clock_time(moment: datetime, now: datetime) -> str:
    """The time of a change in UTC, with its date unless that is today."""
    is_today = moment.astimezone(UTC).date() == now.date()
    return f"{moment.astimezone(UTC):%H:%M:%S}Z" if is_today else cell_text(moment)


def _url_details(event: ChangeView) -> Iterator[str]:
    """What is printed below the URL of a change: the sitemaps of a move, or changed values."""
    if event.kind == "moved":
        yield f"from {event.previous_sitemap or UNKNOWN_SITEMAP}"
        yield f"to   {event.sitemap or UNKNOWN_SITEMAP}"
    elif event.kind.startswith("duplicate_"):
        yield f"{'in' if event.kind == 'duplicate_added' else 'not in'} {event.sitemap}"
    if event.kind == "changed":
        for name in event.fields:
            yield f"{name}: {listed_value(event.before, name)} -> {listed_value(event.after, name)}"


def listed_value(state: dict[str, Any] | None, name: str) -> str:
    """A value of an entry as printed for people: a date as it was listed, none as a dash."""
    values = state or {}
    value = values.get("lastmod_text") if name == "lastmod" else None
    return cell_text(value or values.get(name))


def _event_details(event: ChangeView, data: dict[str, Any]) -> Iterator[str]:
    if event.kind == "baseline":
        yield f"first read: {counted(data.get('url_count') or 0, 'URL')}"
    elif event.kind == "removals_held":
        yield from _held_details(data)
    elif event.kind == "robots_changed":
        yield from _robots_details(event.domain, data)
    elif code := data.get("error_code"):
        yield f"{code}: {plain_meaning(code)}"
    elif values := _simple_values(data):
        yield values


def _held_details(data: dict[str, Any]) -> Iterator[str]:
    yield f"{counted(data.get('count') or 0, 'URL')} missing, but not proved to be removed"
    for document in data.get("documents") or ():
        reason = str(document.get("reason"))
        yield f"{document.get('sitemap')} {HOLD_REASONS.get(reason, reason)}"
    if more := data.get("more_documents"):
        yield f"and {counted(more, 'more sitemap')}"


def _robots_details(domain: str, data: dict[str, Any]) -> Iterator[str]:
    before, after = data.get("http_status_before"), data.get("http_status")
    if before != after:
        yield f"HTTP status: {cell_text(before)} -> {cell_text(after)}"
    lines = (data.get("diff") or "").splitlines()[DIFF_HEADER_LINES:]
    changed = [line for line in lines if line.startswith(("+", "-"))]
    yield from changed[:MAX_ROBOTS_LINES]
    if not changed or len(changed) > MAX_ROBOTS_LINES or data.get("diff_truncated"):
        yield f"{'more' if changed else 'see'}: siteatlas robots {domain} --history"


def _simple_values(data: dict[str, Any]) -> str:
    """The values of an event that fit a line; lists are counted, longer texts left out."""
    shown = []
    for name, value in data.items():
        if isinstance(value, list):
            shown.append(f"{name}: {len(value)}")
        elif isinstance(value, (int, float)) or (isinstance(value, str) and "\n" not in value):
            shown.append(f"{name}: {cell_text(value)}")
    return ", ".join(shown)


def counts_by_kind(counts: dict[str, int] | None) -> str | None:
    """What a scan changed, by kind; None if it was not published."""
    if counts is None:
        return None
    return ", ".join(f"{number:,} {kind}" for kind, number in counts.items() if number) or "none"


NOTHING_KNOWN = ProblemSample()


@dataclass(frozen=True, slots=True)
class ShownProblem:
    """One kind of problem in one place; `remark` follows the count."""

    code: str
    where: str | None
    count: int
    samples: Sequence[ProblemSample] = ()
    remark: str = ""


class ProblemLines:
    """Writes problems that come ordered by code; each code is explained at its first problem.

    With a `width`, explanations are wrapped and addresses shortened to fit a terminal.
    """

    def __init__(self, width: int | None = None) -> None:
        self._width = width
        self._code: str | None = None

    def of(self, problem: ShownProblem) -> Iterator[str]:
        """The lines of the next problem."""
        if problem.code != self._code:
            self._code = problem.code
            yield from self._wrapped(f"{problem.code}: {plain_meaning(problem.code)}")
        remark = f", {problem.remark}" if problem.remark else ""
        where = problem.where or "the scan as a whole"
        yield self._fit_to_terminal(f"  {problem.count:,} in ", where, remark)
        for sample in problem.samples:
            if sample != NOTHING_KNOWN:
                yield self._fit_to_terminal("    ", _sample_words(sample))

    def _wrapped(self, text: str) -> list[str]:
        if self._width is None:
            return [text]
        return textwrap.wrap(text, self._width, subsequent_indent="  ", break_on_hyphens=False)

    def _fit_to_terminal(self, before: str, middle: str, after: str = "") -> str:
        if self._width is not None:
            # Late, because rich is needed on a terminal only.
            from siteatlas.cli.terminal.tables import shorten_middle

            room = self._width - len(before) - len(after)
            middle = shorten_middle(middle, max(room, MIN_ADDRESS_WIDTH))
        return before + middle + after


def plain_meaning(code: str) -> str:
    """What a code of a problem or an error means, in a few words."""
    meaning = meaning_of(code) or "not known to this version"
    return meaning.replace("`", "").replace("[extras](extras.md)", "extras")


def _sample_words(sample: ProblemSample) -> str:
    """A sample of a problem as printed: the number of its entry, its URL and its value."""
    number = f"entry {sample.entry:,}: " if sample.entry is not None else ""
    value = "" if sample.value is None else repr(sample.value)
    return number + "  ".join(part for part in (sample.url, value) if part)
