"""Which stored URLs and changes a command lists: the options that say it, and how they are read.

A moment may be an age (`3d`), a date, a time or, where the change feed is meant, a sequence number.
What can never match is refused with a reason.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from siteatlas.catalog.change_feed import EVENT_KINDS, URL_KINDS, read_head
from siteatlas.catalog.url_lists import ListingState, UrlExtra, UrlFilter
from siteatlas.cli.terminal.options import complete_choice
from siteatlas.errors import InputError
from siteatlas.storage.session import AsyncSession

KINDS = sorted(URL_KINDS | EVENT_KINDS)
EXTRAS = [extra.value for extra in UrlExtra]
# The forms of a time, and of a moment, in help texts and messages.
TIME_FORMS = "90s, 30min, 2h, 3d, 2026-01-31 or 2026-01-31T12:00"
MOMENT_FORMS = "90s, 30min, 2h, 3d, 2026-01-31, 2026-01-31T12:00, or a sequence number of the feed"
FULL_URL_HINT = "Write https://example.com/path, or use --contains for a part of the URL."

_AGE = re.compile(r"(\d{1,6})\s*(s|min|m|h|d|w)", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d\S*)?", re.ASCII)


def typed_moment(text: str) -> datetime | int:
    """The value of an option that takes a moment or a number of the feed."""
    return parse_moment(text, datetime.now(UTC))


def parse_moment(text: str, now: datetime) -> datetime | int:
    """The moment that a user means, or a number of the feed; times without a zone are UTC."""
    return int(text) if _NUMBER.fullmatch(text) else parse_time(text, now, MOMENT_FORMS)


def parse_time(text: str, now: datetime, forms: str = TIME_FORMS) -> datetime:
    """The moment that a user means: an age, a date or a time, without a zone in UTC."""
    try:
        if age := _AGE.fullmatch(text):
            return now - timedelta(seconds=int(age[1]) * _SECONDS[age[2]])
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        why = f"'{text}' is none of these: {forms}."
        if date := _DATE.fullmatch(text):
            why = f"there is no such {'time' if date[1] else 'date'}: {text}."
        raise typer.BadParameter(why) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


async def require_reached(session: AsyncSession, moment: object) -> None:
    """Refuse a number that the change feed has not reached; anything but a number passes."""
    if isinstance(moment, int) and moment > (head := await read_head(session)).seq:
        raise InputError(head.limit_text)


KindsOption = Annotated[
    str | None,
    typer.Option(
        metavar="KINDS",
        help="Only these kinds, separated by commas, such as added,removed.",
        autocompletion=complete_choice(KINDS),
    ),
]


def parse_kinds(text: str | None) -> frozenset[str] | None:
    """The kinds that `--kinds` names; None for all."""
    return None if text is None else frozenset(_words(text, KINDS, "--kinds"))


def _words(text: str, known: list[str], option: str) -> set[str]:
    given = {word.strip() for word in text.split(",")}
    if unknown := sorted(given - set(known)):
        raise typer.BadParameter(
            f"{', '.join(unknown)}: use some of {', '.join(known)}.", param_hint=f"'{option}'"
        )
    return given


def _time_option(name: str, help: str) -> object:
    return typer.Option(
        name,
        metavar="WHEN",
        parser=lambda text: parse_time(text, datetime.now(UTC)),
        help=f"{help}: {TIME_FORMS}.",
    )


ContainsOption = Annotated[
    str | None, typer.Option(help="Only URLs that contain this text, ignoring case.")
]
PrefixOption = Annotated[str | None, typer.Option(help="Only URLs that start with this text.")]
ExactUrlOption = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="Only this URL, exactly as listed.")
]
SitemapOption = Annotated[
    str | None,
    typer.Option(metavar="SITEMAP", help="Only URLs in the sitemap with this id or URL."),
]
LastmodFromOption = Annotated[
    datetime | None, _time_option("--lastmod-from", "Only with a lastmod since")
]
LastmodToOption = Annotated[
    datetime | None, _time_option("--lastmod-to", "Only with a lastmod before")
]
FirstSeenFromOption = Annotated[
    datetime | None, _time_option("--first-seen-from", "Only URLs first seen since")
]
FirstSeenToOption = Annotated[
    datetime | None, _time_option("--first-seen-to", "Only URLs first seen before")
]
HasOption = Annotated[
    str | None,
    typer.Option(
        metavar="EXTRAS",
        help=f"Only URLs that have all of these, separated by commas: {', '.join(EXTRAS)}.",
        autocompletion=complete_choice(EXTRAS),
    ),
]
AtOption = Annotated[
    datetime | None,
    typer.Option(
        "--at",
        metavar="WHEN",
        parser=typed_moment,
        help=f"The URLs of SITE as of: {MOMENT_FORMS}.",
    ),
]
StateOption = Annotated[ListingState, typer.Option(help="Listed URLs, removed URLs, or all.")]


def parse_extras(text: str | None) -> frozenset[UrlExtra]:
    """The extras that `--has` names."""
    return frozenset(map(UrlExtra, _words(text, EXTRAS, "--has"))) if text else frozenset()


def require_possible(wanted: UrlFilter) -> None:
    """Raise InputError if no URL can ever match a filter."""
    for option, text in (("--prefix", wanted.prefix), ("--url", wanted.url)):
        if text and not _may_start_url(text):
            raise InputError(f"{option} is compared with full URLs. {FULL_URL_HINT}")
    for name, start, end in (
        ("lastmod", wanted.lastmod_from, wanted.lastmod_to),
        ("first-seen", wanted.first_seen_from, wanted.first_seen_to),
    ):
        if start is not None and end is not None and start >= end:
            raise InputError(f"--{name}-from must be earlier than --{name}-to.")


def _may_start_url(text: str) -> bool:
    start = text.lower()
    return any(s.startswith(start) or start.startswith(s) for s in ("http://", "https://"))
