"""`siteatlas help`: the same text as `--help`."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None)


@app.command(name="help")
def show_help(
    context: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="A command such as `scan` or `jobs list`."),
    ] = None,
) -> None:
    """Show help for a command, or list all commands.

    Example: siteatlas help scan
    """
    root = context.find_root()
    root.command.main([*(command or []), "--help"], prog_name=root.info_name)
