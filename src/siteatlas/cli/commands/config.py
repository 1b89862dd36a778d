"""`siteatlas config`: all settings, their values and sources."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

import typer

from siteatlas.cli.terminal.options import JsonOption
from siteatlas.cli.terminal.output import WIDE, Column, ColumnKind, write_json, write_table
from siteatlas.setting_types import Secret
from siteatlas.settings import environment_name
from siteatlas.settings_loading import LoadedSettings, load_settings

PASSWORD = re.compile(r"(://[^:@/?]*):.*@")
# Some proxies take a key in the place of the user name.
CREDENTIALS = re.compile(r"://.*@")
PASSWORD_IN_QUERY = re.compile(r"(?i)([?&][a-z_]*password=)[^&]*")
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
        SettingShown(name, _value(name, value), environment_name(name), loaded.origins[name])
        for name, value in loaded.settings.items()
    ]


def _value(name: str, value: object) -> str | int | float | None:
    """The value of a setting as `siteatlas config show` prints it; secrets are masked."""
    if isinstance(value, Secret):
        shown = masked_url(value.get_secret_value())
        return CREDENTIALS.sub("://***@", shown) if name == "proxy" else shown
    if value is None or isinstance(value, (int, float)):
        return value
    return str(value)


def masked_url(url: str) -> str:
    """A URL as `siteatlas config show` prints it: the password masked, an invalid URL hidden."""
    if "://" not in url:
        return "***"
    return PASSWORD_IN_QUERY.sub(r"\1***", PASSWORD.sub(r"\1:***@", url))
