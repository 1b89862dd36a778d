"""Values as people read them on a page: numbers, times, sizes, addresses and states."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from markupsafe import Markup

THIN_SPACE = "\u2009"
MINUS = "\u2212"
NOTHING = "\u2013"
MINUTE, HOUR, DAY = 60, 3_600, 86_400
STEP_OF_BYTES = 1_000
UNITS_OF_BYTES = ("B", "kB", "MB", "GB", "TB")
UNITS_OF_TIME = (("year", 365 * DAY), ("month", 30 * DAY), ("day", DAY), ("hour", HOUR))


@dataclass(frozen=True, slots=True)
class Tone:
    """How a state looks: the name of its colour, its sign and its word."""

    colour: str
    sign: str
    word: str


# Of jobs, scans, domains and documents; a word that is not listed is shown as it is.
TONES = {
    "pending": Tone("waiting", "◷", "waiting"),
    "processing": Tone("running", "◐", "running"),
    "running": Tone("running", "◐", "running"),
    "completed": Tone("good", "✓", "completed"),
    "complete": Tone("good", "✓", "complete"),
    "published": Tone("good", "✓", "completed"),
    "unchanged": Tone("good", "=", "unchanged"),
    "partial": Tone("warn", "!", "partial"),
    "cut": Tone("warn", "!", "truncated"),
    "failed": Tone("bad", "✕", "failed"),
    "unread": Tone("bad", "✕", "not read"),
    "cancelled": Tone("moved", "⊘", "cancelled"),
    "paused": Tone("waiting", "‖", "paused"),
    "never": Tone("waiting", "◷", "not scanned yet"),
    "accepted": Tone("good", "✓", "accepted"),
    "rejected": Tone("waiting", "✕", "rejected"),
    "skipped": Tone("waiting", "⊘", "skipped"),
    "delivered": Tone("good", "✓", "delivered"),
    "failing": Tone("bad", "✕", "failing"),
    "disabled": Tone("waiting", "‖", "disabled"),
    "active": Tone("good", "✓", "active"),
    "expired": Tone("waiting", "⌛", "expired"),
    "revoked": Tone("moved", "⊘", "revoked"),
    "gone": Tone("bad", "✕", "gone"),
}


def tone(state: str | None) -> Tone:
    """How a state looks."""
    return TONES.get(state or "never", Tone("waiting", "·", str(state)))


def code_spans(text: str) -> Markup:
    """A sentence whose parts between backticks are code."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else part
        for place, part in enumerate(parts)
    )


def number(value: float | None) -> str:
    """A number in groups of three digits."""
    if value is None:
        return NOTHING
    return f"{value:,}".replace(",", THIN_SPACE)


def signed(value: int) -> str:
    """A difference with its sign."""
    return f"{'+' if value > 0 else MINUS if value < 0 else '±'}{number(abs(value))}"


def size(value: float | None) -> str:
    """A number of bytes in the largest unit that leaves a number above one."""
    if value is None:
        return NOTHING
    amount, units = float(value), iter(UNITS_OF_BYTES)
    unit = next(units)
    while amount >= STEP_OF_BYTES and unit != UNITS_OF_BYTES[-1]:
        amount, unit = amount / STEP_OF_BYTES, next(units)
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def duration(seconds: float | None) -> str:
    """How long something took."""
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), MINUTE)
    if minutes < MINUTE:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, MINUTE)
    return f"{hours} h {minutes} min"


def relative(moment: datetime, now: datetime) -> str:
    """When something was or will be, from now; the page keeps it true by a script."""
    seconds = (moment - now).total_seconds()
    amount, unit = _largest_unit(abs(seconds))
    text = f"{amount} {unit}{'' if amount == 1 else 's'}"
    return f"in {text}" if seconds > 0 else f"{text} ago"


def _largest_unit(seconds: float) -> tuple[int, str]:
    for unit, length in (*UNITS_OF_TIME, ("minute", MINUTE)):
        if seconds >= length:
            return round(seconds / length), unit
    return round(seconds), "second"


def exact(moment: datetime) -> str:
    """A moment in UTC, for the tooltip of a relative time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def machine_time(moment: datetime) -> str:
    """A moment for the attribute `datetime`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def url_parts(url: str) -> tuple[str, str]:
    """The origin of an address, which is shown dimmed, and the rest."""
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    return (origin, url[len(origin) :] or "/") if url.startswith(origin) else ("", url)


def plural(count: float, one: str, many: str | None = None) -> str:
    """A count with its noun."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"
