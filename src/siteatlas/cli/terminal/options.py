"""Options that several commands share."""

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

    def counts_as_failure(self, *, partial: bool, problems: bool) -> bool:
        """Whether `--fail-on`, an option of several commands, makes this result a failure."""
        match self:
            case FailOn.FAILED:
                return False
            case FailOn.PARTIAL:
                return partial
            case FailOn.PROBLEMS:
                return partial or problems


SiteArgument = Annotated[str, typer.Argument(metavar="SITE", help="A host such as example.com.")]
OptionalSiteArgument = Annotated[
    str | None,
    typer.Argument(metavar="SITE", help="A host such as example.com; all sites without it."),
]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Number or UUID of the job.")]
FormatOption = Annotated[ListFormat, typer.Option("--format", help="Output format.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
ListJsonOption = Annotated[bool, typer.Option("--json", help="Same as --format json.")]
FailOnOption = Annotated[
    FailOn,
    typer.Option(
        help="Exit with an error if the scan failed (failed), if it failed or is partial "
        "(partial), or if it failed, is partial or found problems (problems)."
    ),
]
LimitOption = Annotated[int, typer.Option(min=1, help="Maximum number of items to print.")]
CursorOption = Annotated[
    str | None, typer.Option(help="Continue from the next_cursor of an earlier page.")
]
AllOption = Annotated[bool, typer.Option("--all", help="Print all items.")]
