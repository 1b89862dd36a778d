"""Asks before a command deletes something that cannot be restored."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from siteatlas.cli.terminal.output import is_terminal
from siteatlas.errors import InputError

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def require_confirmation(question: str, consequence: str, *, yes: bool) -> None:
    """Ask unless `--yes` was given; where nobody can be asked, it is required."""
    if yes:
        return
    if not is_terminal(sys.stdin):
        raise InputError(f"{consequence} Add --yes to confirm.")
    typer.confirm(question, abort=True, err=True)
