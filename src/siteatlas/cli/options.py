"""Options that several commands share, so that they look and behave the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from siteatlas.cli.output import ListFormat

SiteArgument = Annotated[str, typer.Argument(metavar="SITE", help="A host such as example.com.")]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The number or the UUID of a job.")]
FormatOption = Annotated[ListFormat, typer.Option("--format", help="What to print on stdout.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, in the shapes of the API.")]
LimitOption = Annotated[int, typer.Option(min=1, help="Most entries to print.")]
CursorOption = Annotated[
    str | None, typer.Option(help="Go on where an earlier list ended (its next_cursor).")
]
AllOption = Annotated[bool, typer.Option("--all", help="Print the whole list, however long.")]
