"""Access keys for administrators: list, create, revoke.

The text of a new key is on the page that answers the form, and nowhere else.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse, Response

from siteatlas.access.identity import CurrentIdentity
from siteatlas.access.key_text import KeyText
from siteatlas.access.keys import (
    MAX_EXPIRY_DAYS,
    SECONDS_A_DAY,
    KeyRequest,
    create_key,
    revoke,
)
from siteatlas.access.marks import ADMIN
from siteatlas.access.scopes import Scope, requested_scopes
from siteatlas.errors import InputError
from siteatlas.insights.keys import list_keys
from siteatlas.logs import get_logger
from siteatlas.storage.retry import retry_when_busy
from siteatlas.storage.session import get_session
from siteatlas.web.context import Context, ReadSession
from siteatlas.web.forms import Form, read_form
from siteatlas.web.templating import next_href, redirect, render

ROWS = 50
SCOPES = {
    Scope.READ: "see everything except keys and the audit trail",
    Scope.SCAN: "submit and watch sites, cancel your own jobs",
    Scope.ADMIN: "everything, including keys",
}

log = get_logger("web")
router = APIRouter(include_in_schema=False)


@router.get("/keys", dependencies=[ADMIN], response_class=HTMLResponse)
async def show_keys(
    request: Request,
    session: ReadSession,
    cursor: Annotated[str | None, Query(max_length=2048)] = None,
) -> HTMLResponse:
    """All keys, and the form for another."""
    page = await list_keys(session, limit=ROWS, cursor=cursor)
    return render(
        request,
        "keys.html",
        keys=page.items,
        scopes=SCOPES,
        next_href=next_href("/keys", page.next_cursor),
    )


@router.post("/keys", dependencies=[ADMIN], response_class=HTMLResponse)
async def create_key_on_page(
    request: Request, context: Context, identity: CurrentIdentity
) -> HTMLResponse:
    """Create a key and show its text; the first one closes the installation."""
    wanted = _key_request(await read_form(request))
    key = await _create(wanted)
    context.installation.close()
    log.info("key_created", key_id=key.id)
    return render(
        request,
        "key_created.html",
        name=wanted.name,
        text=key.text.get_secret_value(),
        closes_installation=identity.is_local,
    )


def _key_request(form: Form) -> KeyRequest:
    """What the form asks for."""
    chosen = form.many("scope")
    if not chosen or not set(Scope).issuperset(chosen):
        raise InputError("Choose at least one scope.")
    days = form.whole_number("days", "The number of days", most=MAX_EXPIRY_DAYS)
    return KeyRequest(
        form.value("name"),
        requested_scopes(chosen),
        user=form.value("user") or None,
        expires_in_seconds=None if days is None else days * SECONDS_A_DAY,
    )


@retry_when_busy
async def _create(wanted: KeyRequest) -> KeyText:
    async with get_session() as session, session.begin():
        return await create_key(session, wanted)


@router.post("/keys/{key_id}/revoke", dependencies=[ADMIN])
async def revoke_key_on_page(
    key_id: Annotated[str, Path(max_length=64, pattern="^[a-z0-9]+$")],
) -> Response:
    """Revoke a key and end its browser sessions."""
    await _revoke(key_id)
    log.info("key_revoked", key_id=key_id)
    return redirect("/keys")


@retry_when_busy
async def _revoke(key_id: str) -> None:
    async with get_session() as session, session.begin():
        await revoke(session, key_id)
