"""The kinds of changes as an option of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from siteatlas.cli.terminal.choices import complete_choice
from siteatlas.insights.feed_windows import EVENT_KINDS, URL_KINDS

KINDS = sorted(URL_KINDS | EVENT_KINDS)

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
    if text is None:
        return None
    given = {word.strip() for word in text.split(",")}
    if unknown := sorted(given - set(KINDS)):
        raise typer.BadParameter(
            f"{', '.join(unknown)}: use some of {', '.join(KINDS)}.", param_hint="'--kinds'"
        )
    return frozenset(given)
