"""Options that several commands share, so that they look and behave the same everywhere."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from siteatlas.cli.terminal.output import ListFormat


class FailOn(StrEnum):
    """What makes a scan or a job end with exit code 1; each includes those before it."""

    FAILED = "failed"
    PARTIAL = "partial"
    PROBLEMS = "problems"

    def includes(self, *, partial: bool, problems: bool) -> bool:
        """Whether something that did not fail counts as a failure nevertheless."""
        match self:
            case FailOn.FAILED:
                return False
            case FailOn.PARTIAL:
                return partial
            case FailOn.PROBLEMS:
                return partial or problems


SiteArgument = Annotated[str, typer.Argument(metavar="SITE", help="A host such as example.com.")]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The number or the UUID of a job.")]
FormatOption = Annotated[ListFormat, typer.Option("--format", help="What to print on stdout.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, in the shapes of the API.")]
FailOnOption = Annotated[
    FailOn,
    typer.Option(
        help="Exit code 1 if nothing was read, if anything is missing, or also if the sitemaps "
        "have problems."
    ),
]
LimitOption = Annotated[int, typer.Option(min=1, help="Most entries to print.")]
CursorOption = Annotated[
    str | None, typer.Option(help="Go on where an earlier list ended (its next_cursor).")
]
AllOption = Annotated[bool, typer.Option("--all", help="Print the whole list, however long.")]
