"""The installation and who uses it: workers, database and settings; keys, sessions, audit trail."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import fields
from datetime import UTC, date, datetime
from operator import attrgetter
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse

from siteatlas.access.authentication import IDLE_SECONDS, LOGIN, LOGOUT, SESSIONS, safe_path
from siteatlas.access.identity import CurrentIdentity
from siteatlas.access.keys import (
    MAX_EXPIRY_DAYS,
    MAX_NAME_CHARS,
    SECONDS_A_DAY,
    KeyRequest,
    KeyText,
    Scope,
    create_key,
    requested_scopes,
    revoke,
)
from siteatlas.access.limits import ADMIN, PUBLIC, READ
from siteatlas.catalog.access import (
    AuditEventView,
    find_key_view,
    list_audit_events,
    list_browser_sessions,
    list_keys,
)
from siteatlas.catalog.paging import MAX_LIMIT
from siteatlas.errors import InputError, KeyInvalid, error_classes
from siteatlas.export.encoding import CsvEncoder, ExportColumn, ExportFormat, Kind, encoded
from siteatlas.logs import get_logger
from siteatlas.queue.views import list_workers
from siteatlas.settings import Settings, displayed_value, environment_name
from siteatlas.storage.session import get_session, retry_when_busy
from siteatlas.web.charts import PeriodBar, ScanMark
from siteatlas.web.context import NO_NUL, Context, Cursor, Form, ReadSession, read_form
from siteatlas.web.templating import TONES, ask, next_href, redirect, render

MESSAGES = {kind.code: kind().message for kind in error_classes()}

router = APIRouter(include_in_schema=False)


@router.get(LOGIN, dependencies=[PUBLIC], response_class=HTMLResponse)
async def show_login(
    request: Request,
    error: Annotated[str, Query(max_length=64)] = "",
    next: Annotated[str, Query(max_length=2048)] = "/",
    ended: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """The form, with what was wrong with the key that was entered before."""
    fault = MESSAGES.get(error, KeyInvalid().message) if error else ""
    return render(request, "login.html", fault=fault, destination=safe_path(next), ended=ended)


@router.get(SESSIONS, dependencies=[READ], response_class=HTMLResponse)
async def show_sessions(
    request: Request,
    session: ReadSession,
    identity: CurrentIdentity,
    ended: Annotated[str, Query(max_length=64)] = "",
    end: Annotated[str, Query(max_length=8)] = "",
) -> HTMLResponse:
    """Where the sender is logged in, or the question whether all of that is to end.

    Nobody sees the sessions of others.
    """
    if end == "all":
        consequence = f"This ends all sessions of {identity.name}, in every browser."
        fields = [("all", "1")]
        return ask(
            request, "Log out everywhere", consequence, SESSIONS, action=LOGOUT, fields=fields
        )
    own = await list_browser_sessions(
        session, identity.user_id, idle_seconds=IDLE_SECONDS, limit=MAX_LIMIT
    )
    return render(request, "sessions.html", sessions=own, ended=ended)


HOURS = [PeriodBar(f"{hour:02d}:00", hour * 7 % 40, hour * 5 % 23, hour % 7) for hour in range(24)]
TODAY = date(2026, 10, 15)
MONTHS = {f"2026-{month:02d}": month * 37 % 90 for month in range(1, 13)} | {"1970-01": 12}
POINTS = [
    (datetime(2026, 1, day, tzinfo=UTC), 1600 + day * 37 % 90) for day in (1, 2, 3, 4, 9, 10, 12)
]
STRIP = [
    ScanMark(("ok", "part", "fail", "none")[n % 7 % 4], 1 + n % 5, f"Scan {n}") for n in range(20)
]
CHANGES = {"added": 1200, "back": 3, "removed": 45, "expired": 6, "changed": 789, "moved": 10}

patterns_router = APIRouter(include_in_schema=False)


@patterns_router.get("/_patterns", dependencies=[READ], response_class=HTMLResponse)
async def show_patterns(request: Request) -> HTMLResponse:
    """The parts, with sample values."""
    return render(
        request,
        "patterns.html",
        states=list(TONES),
        hours=HOURS,
        months=MONTHS,
        today=TODAY,
        points=POINTS,
        strip=STRIP,
        changes=CHANGES,
        line=[bar.added for bar in HOURS],
    )


@router.get("/system", dependencies=[READ], response_class=HTMLResponse)
async def show_system(request: Request, session: ReadSession, context: Context) -> HTMLResponse:
    """What runs where, and how it is set up."""
    load, database = await context.queue_load.run(), await context.database_state.run()
    return render(
        request,
        "system.html",
        workers=await list_workers(session),
        load=load,
        database=database,
        settings=_settings(context.settings),
    )


def _settings(settings: Settings) -> list[tuple[str, object, str]]:
    return [
        (
            environment_name(name),
            displayed_value(name, value),
            "set" if name in settings.given else "default",
        )
        for name, value in settings.items()
    ]


ROWS = 50
SCOPES = {
    Scope.READ: "see everything except keys and the audit trail",
    Scope.SCAN: "submit and watch sites, cancel your own jobs",
    Scope.ADMIN: "everything, including keys",
}

log = get_logger("web")


@router.get("/keys", dependencies=[ADMIN], response_class=HTMLResponse)
async def show_keys(request: Request, session: ReadSession, cursor: Cursor = None) -> HTMLResponse:
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
    request: Request,
    identity: CurrentIdentity,
    key_id: Annotated[str, Path(max_length=64, pattern="^[a-z0-9]+$")],
) -> Response:
    """Revoke a key and end its browser sessions, once that is confirmed."""
    if not (await read_form(request)).is_checked("confirmed"):
        async with get_session() as session, session.begin():
            name = (await find_key_view(session, key_id)).name
        consequence = "Programs that use it are refused from then on, and its sessions end."
        return ask(request, f"Revoke the key {name}", consequence, "/keys")
    await _revoke(key_id, identity.key_id)
    log.info("key_revoked", key_id=key_id)
    return redirect("/keys")


@retry_when_busy
async def _revoke(key_id: str, by_key: str | None) -> None:
    async with get_session() as session, session.begin():
        await revoke(session, key_id, by_key=by_key)


UserName = Annotated[str, Query(max_length=MAX_NAME_CHARS, pattern=NO_NUL)]
AUDIT_COLUMNS = [
    ExportColumn(
        field.name, Kind.TIME if field.name == "created_at" else Kind.TEXT, attrgetter(field.name)
    )
    for field in fields(AuditEventView)
]


@router.get("/audit", dependencies=[ADMIN], response_class=HTMLResponse)
async def show_audit(
    request: Request, session: ReadSession, user: UserName = "", cursor: Cursor = None
) -> HTMLResponse:
    """One page of the audit trail, newest first."""
    page = await list_audit_events(session, user=user or None, limit=ROWS, cursor=cursor)
    kept = {"user": user} if user else {}
    return render(
        request,
        "audit.html",
        events=page.items,
        user=user,
        csv_href=f"/audit.csv?{urlencode(kept)}",
        next_href=next_href("/audit", page.next_cursor, kept),
    )


@router.get("/audit.csv", dependencies=[ADMIN])
async def export_audit(user: UserName = "") -> Response:
    """All events that the filter of the page lets through, as a file."""
    return StreamingResponse(
        encoded(CsvEncoder(AUDIT_COLUMNS), _audit_batches(user or None)),
        media_type=ExportFormat.CSV.media_type,
        headers={"Content-Disposition": 'attachment; filename="siteatlas-audit.csv"'},
    )


async def _audit_batches(user: str | None) -> AsyncIterator[list[AuditEventView]]:
    cursor: str | None = ""
    while cursor is not None:
        async with get_session() as session, session.begin():
            page = await list_audit_events(
                session, user=user, limit=MAX_LIMIT, cursor=cursor or None
            )
        yield page.items
        cursor = page.next_cursor
