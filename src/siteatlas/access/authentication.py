"""Finds out who sends a request, before its body is read: by access key, session, or local mode.

Everything but the public paths needs an identity. What an identity may do is up to the access mark
of each route.

A browser session is a login with an access key, kept as a row and a cookie. The cookie holds 32
random bytes; the row holds their hash. A session ends with its key, after 12 hours without a
request, after seven days in any case, and when its key has opened too many others.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from dataclasses import dataclass
from urllib.parse import parse_qs, quote, urlencode
from uuid import UUID
from weakref import WeakValueDictionary

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from siteatlas.access.audit import audited, record
from siteatlas.access.identity import LOCAL_IDENTITY, Identity, RequestKey
from siteatlas.access.keys import (
    Installation,
    check_key,
    granted_scopes,
    hash_secret,
    parse_key,
)
from siteatlas.access.limits import PUBLIC, AccessLimits
from siteatlas.access.origin import Front, LocalMode, header_values, is_navigation
from siteatlas.catalog.access import (
    end_browser_session,
    end_browser_sessions,
    end_excess_sessions,
    find_browser_session,
    find_key,
    insert_browser_session,
    is_login_valid,
    record_key_use,
    record_session_use,
)
from siteatlas.errors import AccessError, DatabaseError, KeyInvalid, KeyRequired, SessionAmbiguous
from siteatlas.storage.session import get_autocommit_session, get_session

LOGIN = "/login"
LOGOUT = "/logout"
SESSIONS = "/sessions"
# The life of a browser session: without a request, and in any case.
IDLE_SECONDS = 12 * 3600.0
TOTAL_SECONDS = 7 * 86400.0
SESSIONS_PER_KEY = 50
COOKIE = "siteatlas_session"
# A browser takes a cookie of this name only over TLS, for this host alone.
TLS_COOKIE = f"__Host-{COOKIE}"
# When this browser showed the overview: the seconds at which the last visit ended, and of this one.
VISIT_COOKIE = "siteatlas_visit"
# Our cookies among others; a token is as `secrets.token_urlsafe` makes it.
OWN_COOKIE = re.compile(
    rf"(?:^|;)[ \t]*((?:{TLS_COOKIE}|{COOKIE})=[A-Za-z0-9_-]{{43}}"
    rf"|{VISIT_COOKIE}=[0-9]{{1,10}}-[0-9]{{1,10}})[ \t]*(?=;|$)".encode()
)

# By the text of a key: however many requests it sends at once, others wait behind few of them.
_turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class AccessControl:
    """What authentication needs to know; `is_insecure`: without keys, everyone may enter."""

    installation: Installation
    local: LocalMode
    front: Front
    limits: AccessLimits
    is_insecure: bool = False


class Authentication:
    """ASGI middleware that refuses requests of strangers and pages of other origins."""

    def __init__(self, app: ASGIApp, *, control: AccessControl) -> None:
        self._app = app
        self._control = control

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            # 1008: policy violation.
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        drop_other_cookies(scope)
        try:
            await self._admit(scope)
        except KeyRequired:
            if not self._leads_to_login(scope):
                raise
            location = f"{LOGIN}?next={quote(scope['path'])}"
            await RedirectResponse(location, status_code=303)(scope, receive, send)
            return
        await self._app(scope, receive, audited(scope, send))

    def _leads_to_login(self, scope: Scope) -> bool:
        has_key = bool(header_values(scope, b"authorization"))
        return (
            not has_key
            and is_navigation(scope)
            and self._control.front.pages.is_page(scope["path"])
        )

    async def _admit(self, scope: Scope) -> None:
        control = self._control
        is_public = is_public_path(scope["path"])
        closed = await self._is_closed(is_public=is_public)
        if closed or control.is_insecure:
            control.front.check(scope)
        else:
            control.local.check(scope)
        scope[RequestKey.client_address] = control.front.proxies.client_address(scope)
        if not is_public:
            scope[RequestKey.identity] = await identify_sender(scope, control, is_closed=closed)

    async def _is_closed(self, *, is_public: bool) -> bool:
        installation = self._control.installation
        # Public paths are served without a database.
        if is_public and installation.known is not None:
            return installation.known
        try:
            return await installation.is_closed()
        except DatabaseError:
            if is_public:
                return False
            raise


def is_public_path(path: str) -> bool:
    return path in {"/health", LOGIN, LOGOUT} or path.startswith("/static/")


async def identify_sender(scope: Scope, control: AccessControl, *, is_closed: bool) -> Identity:
    """Who sends the request: by key, by session, or in local mode. KeyRequired if nobody does."""
    credentials = header_values(scope, b"authorization")
    if credentials:
        return await identify_by_key(bearer_token(credentials), scope, control.limits)
    if not is_closed:
        return LOCAL_IDENTITY
    # A page of another origin brings its own key; it never acts with the session of a browser.
    if not control.front.is_cross_origin(scope):
        token = session_token(scope, is_tls=control.front.uses_tls(scope))
        identity = None if token is None else await identify_by_session(token)
        if identity is not None:
            return identity
    raise KeyRequired


def bearer_token(credentials: list[bytes]) -> str:
    """The key in the `Authorization` header; KeyInvalid for any other scheme."""
    scheme, _, token = credentials[0].partition(b" ")
    if len(credentials) != 1 or scheme.lower() != b"bearer":
        raise KeyInvalid("Send the access key as Authorization: Bearer KEY.")
    return token.strip().decode("latin-1")


async def identify_by_key(text: str, scope: Scope, limits: AccessLimits) -> Identity:
    """The identity that an access key grants; KeyInvalid if it grants none.

    Wrong keys are counted by address. A valid key is accepted from any address: one program with
    an old key must not keep out the others behind the same proxy.
    """
    try:
        key = parse_key(text)
        turns = _turns.setdefault(text, asyncio.Semaphore(4))
        async with turns, get_autocommit_session() as session:
            stored = check_key(await find_key(session, key.id), key)
    except KeyInvalid as error:
        await limits.count_failed_login(scope[RequestKey.client_address])
        await record(
            scope,
            None,
            action="key_refused",
            target=scope["path"],
            status=error.http_status,
            error_code=error.code,
        )
        raise
    if stored.is_use_due:
        async with get_session() as writing, writing.begin():
            await record_key_use(writing, stored.id)
    scopes = granted_scopes(stored.scopes)
    return Identity(stored.user_id, stored.user_name, scopes, key_id=stored.id)


async def identify_by_session(token: str) -> Identity | None:
    """Who opened the session of this token; None if it has ended, or its key is not valid."""
    async with get_autocommit_session() as session:
        found = await find_browser_session(session, hash_secret(token), IDLE_SECONDS)
    if found is None:
        return None
    ident, key = found
    if key.is_expired or key.is_revoked:
        return None
    if key.is_use_due:
        async with get_session() as writing, writing.begin():
            await record_session_use(writing, ident)
    scopes = granted_scopes(key.scopes)
    return Identity(key.user_id, key.user_name, scopes, key_id=key.id, session_id=ident)


async def is_still_admitted(identity: Identity, control: AccessControl) -> bool:
    """Whether a sender who was identified earlier still has access; for long-lived responses.

    While the database is unavailable, the last answer holds.
    """
    try:
        if identity.is_local:
            return not await control.installation.is_closed()
        return await is_still_valid(identity)
    except DatabaseError:
        return True


async def is_still_valid(identity: Identity) -> bool:
    """Whether the key of an identity, and its session if it has one, have not ended since."""
    assert identity.key_id is not None
    async with get_autocommit_session() as session:
        return await is_login_valid(session, identity.key_id, identity.session_id, IDLE_SECONDS)


@router.post(LOGIN, dependencies=[PUBLIC])
async def log_in(request: Request) -> Response:
    """Open a session for the key in the form, and go on to the page that was asked for.

    With a key that is not valid, or that has been used too often, go back to the form with the
    code of the error.
    """
    control: AccessControl = request.app.state.access
    form = await _form_fields(request)
    destination = safe_path(form.get("next", ["/"])[-1])
    try:
        identity = await identify_by_key(
            form.get("key", [""])[-1].strip(), request.scope, control.limits
        )
        await control.limits.count_request(identity, is_read=False)
    except AccessError as error:
        parameters = urlencode({"error": error.code, "next": destination})
        return RedirectResponse(f"{LOGIN}?{parameters}", status_code=303)
    request.scope[RequestKey.identity] = identity
    response = RedirectResponse(destination, status_code=303)
    is_tls = control.front.uses_tls(request.scope)
    set_session_cookie(response, await open_session(identity), is_tls=is_tls)
    return response


@router.post(LOGOUT, dependencies=[PUBLIC])
async def log_out(request: Request) -> Response:
    """End the session of this browser; with the fields `all` and `confirmed`, all of its user.

    With the field `session`, end that one of them instead, and go back to their list.
    """
    control: AccessControl = request.app.state.access
    is_tls = control.front.uses_tls(request.scope)
    token = session_token(request.scope, is_tls=is_tls)
    location = LOGIN if token is None else await _end(request, control, token)
    response = RedirectResponse(location, status_code=303)
    if location.startswith(LOGIN):
        clear_session_cookie(response, is_tls=is_tls)
    return response


async def _end(request: Request, control: AccessControl, token: str) -> str:
    """End what the form names; return where to go on, which is also what the trail records."""
    try:
        identity = await identify_sender(request.scope, control, is_closed=True)
    except KeyRequired:
        return LOGIN
    request.scope[RequestKey.identity] = identity
    form = await _form_fields(request)
    async with get_session() as session, session.begin():
        if "session" in form:
            ident = _session_id(form["session"][-1])
            ended = ident and await end_browser_sessions(session, identity.user_id, ident)
            return f"{SESSIONS}?ended={ident}" if ended else SESSIONS
        if "all" in form and "confirmed" not in form:
            return f"{SESSIONS}?end=all"
        await end_browser_session(session, hash_secret(token))
        if "all" in form:
            await end_browser_sessions(session, identity.user_id)
            return f"{LOGIN}?ended=all"
    return LOGIN


def _session_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


async def _form_fields(request: Request) -> dict[str, list[str]]:
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return parse_qs(text, max_num_fields=10)
    except ValueError:
        return {}


def safe_path(text: str) -> str:
    """A path on this service to go on to after the login; the front page for anything else."""
    is_path = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if is_path and not text.startswith((LOGIN, LOGOUT)) else "/"


async def open_session(identity: Identity) -> str:
    """Open a session for the holder of a key; return the token for the cookie."""
    assert identity.key_id is not None
    token = secrets.token_urlsafe(32)
    async with get_session() as session, session.begin():
        await insert_browser_session(
            session,
            token_hash=hash_secret(token),
            key_id=identity.key_id,
            total_seconds=TOTAL_SECONDS,
        )
        await end_excess_sessions(session, identity.key_id, SESSIONS_PER_KEY)
    return token


def session_token(scope: Scope, *, is_tls: bool) -> str | None:
    """The token in the cookie of a request; over TLS only the cookie that TLS protects counts.

    SessionAmbiguous if there are two: a page on another port of the host may have set one of them.
    """
    wanted = (TLS_COOKIE if is_tls else COOKIE).encode()
    cookies = (cookie.partition(b"=") for cookie in _own_cookies(scope))
    tokens = [token.decode() for name, _, token in cookies if name == wanted]
    if len(tokens) > 1:
        raise SessionAmbiguous
    return tokens[0] if tokens else None


def drop_other_cookies(scope: Scope) -> None:
    """Remove all cookies from a request but our own.

    The framework parses the cookies of every request, which before Python 3.11.10 takes seconds
    for some cookies of 32 KiB. Other programs on the same host may have set any number of them.
    """
    if header_values(scope, b"cookie"):
        others = [(name, value) for name, value in scope["headers"] if name != b"cookie"]
        kept = b"; ".join(_own_cookies(scope))
        scope["headers"] = [*others, (b"cookie", kept)] if kept else others


def _own_cookies(scope: Scope) -> list[bytes]:
    found: list[bytes] = OWN_COOKIE.findall(b"; ".join(header_values(scope, b"cookie")))
    return found


def set_session_cookie(response: Response, token: str, *, is_tls: bool) -> None:
    """Give the token to the browser: no script reads it, no other site sends it along."""
    response.set_cookie(
        TLS_COOKIE if is_tls else COOKIE,
        token,
        max_age=int(TOTAL_SECONDS),
        path="/",
        secure=is_tls,
        httponly=True,
        samesite="lax",
    )


def clear_session_cookie(response: Response, *, is_tls: bool) -> None:
    name = TLS_COOKIE if is_tls else COOKIE
    response.delete_cookie(name, path="/", secure=is_tls, httponly=True, samesite="lax")
