"""`siteatlas db`: the schema of the database, backups, and the version of the embedded server."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from siteatlas.access.audit import record_command
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import run, run_until_signal
from siteatlas.cli.terminal.options import JsonOption
from siteatlas.cli.terminal.output import (
    counted,
    is_terminal,
    print_message,
    write_details,
    write_json,
)
from siteatlas.errors import DatabaseError, InputError
from siteatlas.queue.operator_actions import refuse_while_workers_run, requeue_restored_jobs
from siteatlas.settings import Settings
from siteatlas.storage.backup import (
    STANDARD_STREAM,
    ArchiveReader,
    backup_source,
    backup_target,
    restore_backup,
    verify_backup,
    write_backup,
)
from siteatlas.storage.models import BACKED_UP
from siteatlas.storage.schema import current_revision, needed_revision, upgrade_schema
from siteatlas.storage.server_upgrade import upgrade_embedded_server
from siteatlas.storage.session import AsyncConnection, get_session
from siteatlas.storage.startup import open_storage


async def backup_database(settings: Settings, file: str, *, secrets: bool) -> dict[str, int]:
    """Back up for `siteatlas db backup`; returns the number of rows by table.

    It is recorded before it is written, so that nothing is copied without a trace, and at its end.
    """
    async with opened(settings) as database:
        with backup_target(file) as target:
            await _record_backup("db backup", _file_name(file))
            rows = await write_backup(database, target, secrets=secrets)
        if secrets:
            await _record_backup(BACKED_UP, _file_name(file))
        return rows


async def _record_backup(action: str, name: str | None) -> None:
    """Add an audit event, or say that there is none: a read-only database can be backed up too."""
    try:
        async with get_session() as session, session.begin():
            await record_command(session, action, name)
    except DatabaseError as error:
        print_message(f"The backup is not recorded in the audit trail. {error.message}")


def _file_name(file: str) -> str | None:
    """The name of a backup in the audit trail; None for a standard stream."""
    return None if file == STANDARD_STREAM else Path(file).name


async def restore_database(settings: Settings, file: str, *, replace: bool) -> dict[str, int]:
    """Restore for `siteatlas db restore`; returns the number of rows by table."""

    async def finish(connection: AsyncConnection) -> None:
        """Requeue running jobs, and leave a trace of the restore."""
        await requeue_restored_jobs(connection)
        await record_command(connection, "db restore", _file_name(file))

    with backup_source(file) as source:
        reader = ArchiveReader(source)
        async with open_storage(settings, announce=print_message, check_schema=False) as database:
            return await restore_backup(
                database, reader, replace=replace, check=refuse_while_workers_run, finish=finish
            )


app = typer.Typer(help="Manage the database.", no_args_is_help=True, rich_markup_mode=None)


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


@app.command()
def backup(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="File to write, replaced if it exists; - for stdout."),
    ],
    without_secrets: Annotated[
        bool,
        typer.Option("--without-secrets", help="Leave out webhooks and request headers of sites."),
    ] = False,
) -> None:
    """Back up the whole database to a file; the service can keep running.

    The file holds everything that is stored, including secrets of webhooks, request headers of
    sites and hashes of access keys; only its owner can read it.
    """
    if file == STANDARD_STREAM and is_terminal(sys.stdout):
        raise InputError("A backup is not text: name a FILE, or redirect the output.")
    rows = run_until_signal(backup_database(prepare(), file, secrets=not without_secrets))
    print_message(f"Backed up {_rows_in_words(rows)}.")


@app.command()
def restore(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Backup to read; - for stdin.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the existing data in the database.")
    ] = False,
) -> None:
    """Restore a backup, of this or an earlier version of Siteatlas.

    Stop all processes first. Running jobs go back to the queue. Readers of the change feed must
    read the current state again.
    """
    rows = run_until_signal(restore_database(prepare(), file, replace=replace))
    print_message(f"Restored {_rows_in_words(rows)}.{_left_out(rows)}")


@app.command()
def verify(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Backup to read; - for stdin.")],
) -> None:
    """Check a backup without a database: whether it is complete and can be restored.

    A damaged or truncated file is refused here as it would be by a restore.
    """
    prepare()
    with backup_source(file) as source:
        reader = ArchiveReader(source)
        rows = run(verify_backup(reader))
    about = reader.manifest
    print_message(
        f"The backup is complete: {_rows_in_words(rows)}. It was written at {about.created_at} by "
        f"Siteatlas {about.version}, with schema revision {about.revision}.{_left_out(rows)}"
    )


def _left_out(rows: dict[str, int]) -> str:
    missing = "webhook_endpoints" not in rows
    return " It holds no webhooks and no request headers of sites." if missing else ""


@app.command("upgrade-server")
def upgrade_server(
    programs: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory of the PostgreSQL programs that wrote the data, such as "
            "/usr/lib/postgresql/17/bin; by default, those of the installed package.",
        ),
    ] = None,
) -> None:
    """Upgrade the data directory of the embedded server to its current major version.

    Stop all processes first. The old data is kept next to the new data, so twice the space
    is needed.
    """
    upgrade = run(upgrade_embedded_server(prepare(), programs, print_message))
    print_message(
        f"Upgraded from PostgreSQL {upgrade.old_major} to {upgrade.new_major}: "
        f"{_rows_in_words(upgrade.rows)}. The old data is in {upgrade.kept}; delete it when you no "
        "longer need it."
    )


def _rows_in_words(rows: dict[str, int]) -> str:
    shown = {"domains": "site", "sitemap_urls": "URL", "jobs": "job"}
    return ", ".join(counted(rows.get(table, 0), noun) for table, noun in shown.items())


def _write(state: SchemaState, *, as_json: bool) -> None:
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
    async with open_storage(settings, announce=print_message, check_schema=False) as database:
        return _state(await current_revision(database.engine))


def _state(current: str | None) -> SchemaState:
    needed = needed_revision()
    return SchemaState(current, needed, current == needed)
