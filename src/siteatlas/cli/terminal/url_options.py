"""The filters of stored URLs as options of commands."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from siteatlas.cli.terminal.choices import complete_choice
from siteatlas.cli.terminal.moments import FORMS, TIME_FORMS, parse_time, typed_moment
from siteatlas.errors import InputError
from siteatlas.insights.url_filters import ListingState, UrlExtra, UrlFilter

SCHEMES = ("http://", "https://")
FULL_URL_HINT = "Write https://example.com/path, or use --contains for a part of the URL."
EXTRAS = [extra.value for extra in UrlExtra]


def _parse_filter_time(text: str) -> datetime:
    """The time that an option of a filter gives."""
    return parse_time(text, datetime.now(UTC))


def _time_option(name: str, help: str) -> object:
    """An option of a filter that takes a time."""
    return typer.Option(
        name, metavar="WHEN", parser=_parse_filter_time, help=f"{help}: {TIME_FORMS}."
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
        "--at", metavar="WHEN", parser=typed_moment, help=f"The URLs of SITE as of: {FORMS}."
    ),
]
StateOption = Annotated[ListingState, typer.Option(help="Listed URLs, removed URLs, or all.")]


def require_possible(wanted: UrlFilter) -> None:
    """Raise InputError if no URL can ever match a filter."""
    for option, text in (("--prefix", wanted.prefix), ("--url", wanted.url)):
        if text and not _may_start_url(text):
            raise InputError(f"{option} is compared with full URLs. {FULL_URL_HINT}")
    _require_order("lastmod", wanted.lastmod_from, wanted.lastmod_to)
    _require_order("first-seen", wanted.first_seen_from, wanted.first_seen_to)


def _may_start_url(text: str) -> bool:
    """Whether an http(s) URL can start with the value of a filter."""
    start = text.lower()
    return any(s.startswith(start) or start.startswith(s) for s in SCHEMES)


def _require_order(name: str, start: datetime | None, end: datetime | None) -> None:
    """Refuse a filter for a range of time that ends before it starts."""
    if start is not None and end is not None and start >= end:
        raise InputError(f"--{name}-from must be earlier than --{name}-to.")


def parse_extras(text: str | None) -> frozenset[UrlExtra]:
    """The extras that `--has` names."""
    given = {word.strip() for word in text.split(",")} if text else set()
    if unknown := sorted(given - set(EXTRAS)):
        raise typer.BadParameter(
            f"{', '.join(unknown)}: use some of {', '.join(EXTRAS)}.", param_hint="'--has'"
        )
    return frozenset(map(UrlExtra, given))
