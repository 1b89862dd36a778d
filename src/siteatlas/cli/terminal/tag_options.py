"""The options of commands that name tags of sites."""

from __future__ import annotations

from typing import Annotated

import typer

from siteatlas.errors import InputError
from siteatlas.tags import parse_tag

TagsOption = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="Tag to add to the sites. Repeatable."),
]
TagFilterOption = Annotated[
    str | None,
    typer.Option(
        "--tag", metavar="TAG", parser=parse_tag, help="Only of sites that have this tag."
    ),
]


def refuse_site_with_tag(site: str | None, tag: str | None) -> None:
    """Refuse a command that names both a site and a tag."""
    if site is not None and tag is not None:
        raise InputError("Use either SITE or --tag, not both.")
