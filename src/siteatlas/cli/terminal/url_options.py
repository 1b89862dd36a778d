"""The filters of stored URLs as options of commands."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from siteatlas.cli.terminal.choices import complete_choice
from siteatlas.cli.terminal.moments import FORMS, TIME_FORMS, parse_moment, parse_time
from siteatlas.insights.url_filters import ListingState, UrlExtra

EXTRAS = [extra.value for extra in UrlExtra]


def _parse_filter_time(text: str) -> datetime:
    """The time that an option of a filter gives."""
    return parse_time(text, datetime.now(UTC))


def _parse_past_moment(text: str) -> datetime | int:
    """The time or the number that `--at` gives."""
    return parse_moment(text, datetime.now(UTC))


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
        "--at", metavar="WHEN", parser=_parse_past_moment, help=f"The URLs of SITE as of: {FORMS}."
    ),
]
StateOption = Annotated[ListingState, typer.Option(help="Listed URLs, removed URLs, or all.")]


def parse_extras(text: str | None) -> frozenset[UrlExtra]:
    """The extras that `--has` names."""
    given = {word.strip() for word in text.split(",")} if text else set()
    if unknown := sorted(given - set(EXTRAS)):
        raise typer.BadParameter(f"{', '.join(unknown)}: use some of {', '.join(EXTRAS)}.")
    return frozenset(map(UrlExtra, given))
