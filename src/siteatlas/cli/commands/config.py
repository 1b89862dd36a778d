"""`siteatlas config`: all settings, their values and sources."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from siteatlas.cli.terminal.options import JsonOption
from siteatlas.cli.terminal.output import WIDE, Column, ColumnKind, write_json, write_table
from siteatlas.settings import (
    LoadedSettings,
    displayed_value,
    environment_name,
    load_settings,
)

COLUMNS = [
    Column("SETTING", kind=ColumnKind.NAME),
    Column("VALUE", kind=ColumnKind.PROSE),
    Column("ENVIRONMENT", kind=ColumnKind.NAME, from_width=WIDE),
    Column("FROM", kind=ColumnKind.PROSE),
]

app = typer.Typer(help="Show the settings.", no_args_is_help=True, rich_markup_mode=None)


@dataclass(frozen=True, slots=True)
class SettingShown:
    """One line of the list."""

    setting: str
    value: str | int | float | None
    environment: str
    origin: str


@app.callback()
def group() -> None:
    """Keep `show` a subcommand while it is the only one."""


@app.command()
def show(as_json: JsonOption = False) -> None:
    """Show each setting with its value and source; secrets are hidden."""
    shown = settings_shown(load_settings())
    if as_json:
        write_json({"items": [asdict(line) for line in shown], "next_cursor": None})
    else:
        write_table(
            COLUMNS, ((line.setting, line.value, line.environment, line.origin) for line in shown)
        )


def settings_shown(loaded: LoadedSettings) -> list[SettingShown]:
    """All settings in the order in which they are declared."""
    return [
        SettingShown(
            name, displayed_value(name, value), environment_name(name), loaded.origins[name]
        )
        for name, value in loaded.settings.items()
    ]


help_app = typer.Typer(rich_markup_mode=None)


@help_app.command(name="help")
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
