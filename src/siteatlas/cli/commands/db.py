"""`siteatlas db`: the schema of the database."""

from __future__ import annotations

from dataclasses import dataclass

import typer

from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.options import JsonOption
from siteatlas.cli.terminal.output import print_message, write_details, write_json
from siteatlas.settings import Settings
from siteatlas.storage.schema import current_revision, needed_revision, upgrade_schema
from siteatlas.storage.startup import open_storage

app = typer.Typer(help="Manage the database schema.", no_args_is_help=True, rich_markup_mode=None)


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The revision that the database has, and the one that this version needs."""

    current_revision: str | None
    needed_revision: str
    up_to_date: bool


@app.command()
def upgrade(as_json: JsonOption = False) -> None:
    """Upgrade the database schema.

    The result is the revision that this version of Siteatlas requires.
    """
    state = run(_upgrade(prepare()))
    _write(state, as_json=as_json)
    print_message("The schema is up to date.")


@app.command()
def current(as_json: JsonOption = False) -> None:
    """Show the schema revision of the database.

    Exit with 1 if this version of Siteatlas requires a different one.
    """
    state = run(_load_state(prepare()))
    _write(state, as_json=as_json)
    raise typer.Exit(0 if state.up_to_date else 1)


def _write(state: SchemaState, *, as_json: bool) -> None:
    """Print the schema revisions for `siteatlas db`, as text or JSON."""
    if as_json:
        write_json(state)
    else:
        write_details((name, getattr(state, name)) for name in SchemaState.__dataclass_fields__)


async def _upgrade(settings: Settings) -> SchemaState:
    """Upgrade the schema for `siteatlas db upgrade`; returns its revisions afterwards."""
    async with open_storage(settings, announce=print_message, check_schema=False) as database:
        await upgrade_schema(database.engine)
        return _state(await current_revision(database.engine))


async def _load_state(settings: Settings) -> SchemaState:
    """Open the database and read its schema revision, for `siteatlas db current`."""
    async with open_storage(settings, announce=print_message, check_schema=False) as database:
        return _state(await current_revision(database.engine))


def _state(current: str | None) -> SchemaState:
    """Compare the schema revision of the database with the one that this version needs."""
    needed = needed_revision()
    return SchemaState(current, needed, current == needed)
