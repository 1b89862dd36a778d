"""`siteatlas keys` and `siteatlas audit`: access keys, and what was done with them.

Whoever can run a command on this machine may do everything.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from siteatlas.access.audit import record_command
from siteatlas.access.keys import (
    KeyRequest,
    KeyText,
    Scope,
    create_key,
    generate_key,
    lacks_admin_key,
)
from siteatlas.access.keys import (
    revoke as revoke_key,
)
from siteatlas.catalog.access import (
    AuditEventView,
    KeyView,
    any_key_made,
    delete_all_keys,
    find_key_view,
    list_audit_events,
    list_keys,
)
from siteatlas.cli.hosting.connections import CREATE_ADMIN_KEY, NO_ADMIN_KEY
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.options import (
    JsonOption,
    YesOption,
    require_confirmation,
)
from siteatlas.cli.terminal.output import (
    WIDE,
    Column,
    ColumnKind,
    print_message,
    print_warning,
    write_json,
    write_line,
)
from siteatlas.cli.terminal.paged_list import (
    ListRequest,
    TableLayout,
    print_list,
    with_list_options,
)
from siteatlas.errors import InputError, OutputFailed
from siteatlas.settings import Settings
from siteatlas.storage.session import get_session

AUDIT_EVENTS: TableLayout[AuditEventView] = TableLayout(
    columns=[
        Column("WHEN", kind=ColumnKind.AGE, value="created_at"),
        Column("USER", value="user_name"),
        Column("KEY", from_width=WIDE, value="key_id"),
        Column("FROM", value="address"),
        Column("ACTION", value="action"),
        Column("STATUS", right=True, value="status"),
        Column("TARGET", value="target"),
    ],
    none="The audit trail is empty.",
    none_matches="No event matches.",
    record=AuditEventView,
)

audit_app = typer.Typer(rich_markup_mode=None)


@audit_app.command()
@with_list_options
def audit(
    *,
    user: Annotated[str | None, typer.Option(help="Only events of this user.")] = None,
    request: ListRequest,
) -> None:
    """List who changed what, from where and with what result, newest first.

    Requests in local mode are not recorded. Commands that manage keys or webhooks, or that back up
    or restore the database, are.
    """
    read = partial(list_audit_events, user=user)
    run(print_list(prepare(), request, AUDIT_EVENTS.filtered_by(user), read))


DURATION = re.compile(r"(?P<number>[1-9][0-9]{0,5})(?P<unit>[mhdw])")
UNIT_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 604800}
KEYS: TableLayout[KeyView] = TableLayout(
    columns=[
        Column("ID", value="id"),
        Column("NAME", value="name"),
        Column("USER", from_width=WIDE, value="user"),
        Column("SCOPES", value=lambda k: ",".join(k.scopes)),
        Column("STATUS", kind=ColumnKind.STATUS, value="status"),
        Column("CREATED", kind=ColumnKind.AGE, from_width=WIDE, value="created_at"),
        Column("EXPIRES", kind=ColumnKind.AGE, value="expires_at"),
        Column("LAST USED", kind=ColumnKind.AGE, value="last_used_at"),
    ],
    none="There are no access keys. This machine's own user needs none.",
    none_matches="No access key matches.",
    record=KeyView,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedKey:
    """A new key; whether it is the first one, and whether no active key has the scope admin."""

    key: KeyText
    view: KeyView
    is_first: bool
    lacks_admin: bool


app = typer.Typer(help="Manage access keys.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def create(
    name: Annotated[str, typer.Option(help="What the key is for.")],
    scope: Annotated[
        list[Scope] | None,
        typer.Option(
            help="What it allows; repeatable; by default, read. admin includes the others."
        ),
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="User on whose behalf it acts; by default, NAME.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="Time until it expires, such as 12h, 90d or 52w.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create an access key and print it, once.

    The first key closes the installation: from then on every request to the service needs one.
    """
    settings = prepare()
    request = KeyRequest(
        name, frozenset(scope or [Scope.READ]), user=user, expires_in_seconds=_seconds(expires)
    )
    created = run(_create(settings, request))
    _write_created(created, as_json=as_json)


def _write_created(created: CreatedKey, *, as_json: bool) -> None:
    text = created.key.text.get_secret_value()
    if as_json:
        write_json(asdict(created.view) | {"key": text})
    else:
        write_line(text)
    print_message("Store the key now: it is not shown again.")
    if created.is_first:
        print_message("From now on, every request to the service needs a key.")
    if created.lacks_admin:
        print_warning(f"{NO_ADMIN_KEY} {CREATE_ADMIN_KEY}", style="yellow")


def _seconds(text: str | None) -> float | None:
    """The duration that `--expires` names; None without one."""
    if text is None:
        return None
    match = DURATION.fullmatch(text.strip())
    if match is None:
        raise InputError(f"--expires: {text!r} is not a duration such as 12h, 90d or 52w.")
    return float(int(match["number"]) * UNIT_SECONDS[match["unit"]])


@app.command("list")
@with_list_options
def list_(
    *,
    request: ListRequest,
) -> None:
    """List access keys, including expired and revoked ones."""
    run(print_list(prepare(), request, KEYS, list_keys))


@app.command()
def revoke(
    key_id: Annotated[
        str, typer.Argument(metavar="ID", help="Id of the key; see siteatlas keys list.")
    ],
) -> None:
    """Revoke an access key and end its browser sessions."""
    run(_revoke(prepare(), key_id))
    print_message(f"Revoked {key_id}.")


@app.command()
def reset(
    yes: YesOption = False,
) -> None:
    """Delete all access keys: the service is open to this machine's user again, and to no other.

    Running services on other addresses than loopback must be stopped first.
    """
    settings = prepare()
    require_confirmation("Delete all access keys?", "This deletes all access keys.", yes=yes)
    print_message(f"Deleted {run(_reset(settings))} access keys.")


@app.command()
def generate(
    output: Annotated[
        Path | None,
        typer.Option(help="New file to write it to, which only its owner can read."),
    ] = None,
) -> None:
    """Print a new random key without storing it, for SITEATLAS_ADMIN_KEY_FILE."""
    text = generate_key().text.get_secret_value()
    if output is None:
        write_line(text)
        return
    try:
        output.touch(mode=0o600, exist_ok=False)
        output.write_text(f"{text}\n", encoding="ascii")
    except OSError as error:
        raise OutputFailed(f"{output} cannot be written: {error.strerror}.") from error


async def _create(settings: Settings, request: KeyRequest) -> CreatedKey:
    async with opened(settings), get_session() as session, session.begin():
        is_first = not await any_key_made(session)
        key = await create_key(session, request)
        await record_command(session, "keys create", key.id)
        view = await find_key_view(session, key.id)
        lacks_admin = await lacks_admin_key(session, settings.admin_key_file)
        return CreatedKey(key=key, view=view, is_first=is_first, lacks_admin=lacks_admin)


async def _revoke(settings: Settings, key_id: str) -> None:
    async with opened(settings), get_session() as session, session.begin():
        await revoke_key(session, key_id)
        await record_command(session, "keys revoke", key_id)


async def _reset(settings: Settings) -> int:
    """Delete all keys for `siteatlas keys reset`; returns their number."""
    async with opened(settings), get_session() as session, session.begin():
        await record_command(session, "keys reset")
        return await delete_all_keys(session)
