"""`siteatlas audit`: the audit trail."""

from __future__ import annotations

from typing import Annotated

import typer

from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.database import opened
from siteatlas.cli.terminal.errors import run
from siteatlas.cli.terminal.options import (
    AllOption,
    CursorOption,
    FormatOption,
    LimitOption,
    ListJsonOption,
)
from siteatlas.cli.terminal.output import WIDE, Column, ColumnKind, ListFormat
from siteatlas.cli.terminal.paged_list import ListRequest, TableLayout, write_list
from siteatlas.insights.audit import AuditEventView, list_audit_events
from siteatlas.insights.pages import DEFAULT_LIMIT, Page
from siteatlas.settings import Settings
from siteatlas.storage.session import get_session

SHAPE: TableLayout[AuditEventView] = TableLayout(
    columns=[
        Column("WHEN", kind=ColumnKind.AGE),
        Column("USER"),
        Column("KEY", from_width=WIDE),
        Column("FROM"),
        Column("ACTION"),
        Column("STATUS", right=True),
        Column("TARGET"),
    ],
    row=lambda e: (
        e.created_at,
        e.user_name,
        e.key_id,
        e.address,
        e.action,
        e.status,
        e.target,
    ),
    none="The audit trail is empty.",
    none_matches="No event matches.",
    record=AuditEventView,
)

app = typer.Typer(rich_markup_mode=None)


@app.command()
def audit(
    *,
    user: Annotated[str | None, typer.Option(help="Only events of this user.")] = None,
    limit: LimitOption = DEFAULT_LIMIT,
    cursor: CursorOption = None,
    everything: AllOption = False,
    format: FormatOption = ListFormat.TABLE,
    as_json: ListJsonOption = False,
) -> None:
    """List who changed what, from where and with what result, newest first.

    Requests in local mode are not recorded. Commands that manage keys or webhooks, or that back up
    or restore the database, are.
    """
    settings = prepare()
    request = ListRequest.of(
        format, as_json=as_json, limit=limit, cursor=cursor, everything=everything
    )
    run(_list_events(settings, request, user))


async def _list_events(settings: Settings, request: ListRequest, user: str | None) -> None:
    """Print the audit trail for `siteatlas audit`."""

    async def fetch(limit: int, cursor: str | None) -> Page[AuditEventView]:
        """Read one page of the audit trail for `siteatlas audit`."""
        async with get_session() as session, session.begin():
            return await list_audit_events(session, user=user, limit=limit, cursor=cursor)

    async with opened(settings):
        await write_list(request, fetch, SHAPE.filtered_by(user))
