"""Arguments and options that several commands share, and how they are read.

Filters of stored URLs and changes are in `filters`: this module is also used by `siteatlas scan`,
which knows no database.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Annotated

import typer

from siteatlas.cli.terminal.output import ListFormat, is_terminal
from siteatlas.errors import InputError
from siteatlas.text import parse_tag

# An argument that means "read it from stdin".
STDIN = "-"
MAX_LINE_CHARS = 8192


class FailOn(StrEnum):
    """What makes a scan or a job end with exit code 1; each includes those before it."""

    FAILED = "failed"
    PARTIAL = "partial"
    PROBLEMS = "problems"

    def counts_as_failure(self, *, partial: bool, problems: bool) -> bool:
        """Whether a result that is not `failed` still makes the command fail."""
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
TagFilterOption = Annotated[
    str | None,
    typer.Option(
        "--tag", metavar="TAG", parser=parse_tag, help="Only of sites that have this tag."
    ),
]
FailOnOption = Annotated[
    FailOn,
    typer.Option(
        help="Exit with an error if the scan failed (failed), if it failed or is partial "
        "(partial), or if it failed, is partial or found problems (problems)."
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

# The options of a list.
FormatOption = Annotated[ListFormat, typer.Option("--format", help="Output format.")]
ListJsonOption = Annotated[bool, typer.Option("--json", help="Same as --format json.")]
LimitOption = Annotated[int, typer.Option(min=1, help="Maximum number of items to print.")]
CursorOption = Annotated[
    str | None, typer.Option(help="Continue from the next_cursor of an earlier page.")
]
AllOption = Annotated[bool, typer.Option("--all", help="Print all items.")]


def refuse_site_with_tag(site: str | None, tag: str | None) -> None:
    """Refuse a command that names both a site and a tag."""
    if site is not None and tag is not None:
        raise InputError("Use either SITE or --tag, not both.")


def require_confirmation(question: str, consequence: str, *, yes: bool) -> None:
    """Ask unless `--yes` was given; where nobody can be asked, it is required."""
    if yes:
        return
    if not is_terminal(sys.stdin):
        raise InputError(f"{consequence} Add --yes to confirm.")
    typer.confirm(question, abort=True, err=True)


def alternatives(known: Iterable[str]) -> str:
    """The words of a set, as the help of an option shows them."""
    return "|".join(known)


def complete_choice(*known: Iterable[str]) -> Callable[[str], list[str]]:
    """Shell completion for an option that takes one of these words."""
    words = [str(word) for group in known for word in group]

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete.lower())]

    return complete
