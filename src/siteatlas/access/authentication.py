"""Finds out who sends a request, before its body is read: by access key, session, or local mode.

Everything but `PUBLIC_PATHS` needs an identity. What an identity may do is up to the access mark of
each route.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from siteatlas.access.audit import CLIENT_ADDRESS, audited, record
from siteatlas.access.browser_sessions import (
    drop_other_cookies,
    identify_by_session,
    is_still_valid,
    session_token,
)
from siteatlas.access.front import Front
from siteatlas.access.identity import IDENTITY, LOCAL_IDENTITY, Identity
from siteatlas.access.installation import Installation
from siteatlas.access.key_text import parse_key
from siteatlas.access.keys import check_key
from siteatlas.access.limits import AccessLimits
from siteatlas.access.local_mode import LocalMode
from siteatlas.access.request_headers import header_values, is_navigation
from siteatlas.access.scopes import granted_scopes
from siteatlas.errors import DatabaseError, KeyInvalid, KeyRequired
from siteatlas.storage.session import get_autocommit_session, get_session
from siteatlas.storage.statements.api_keys import StoredKey, find_key, record_key_use

PUBLIC_PATHS = frozenset({"/health", "/login", "/logout"})
PUBLIC_PREFIX = "/static/"
POLICY_VIOLATION = 1008
ONLY_BEARER = "Send the access key as Authorization: Bearer KEY."
KEY_REFUSED = "key_refused"


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
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
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
            location = f"/login?next={quote(scope['path'])}"
            await RedirectResponse(location, status_code=303)(scope, receive, send)
            return
        await self._app(scope, receive, audited(scope, send))

    def _leads_to_login(self, scope: Scope) -> bool:
        """Whether a person opens a page without having logged in."""
        has_key = bool(header_values(scope, b"authorization"))
        return (
            not has_key
            and is_navigation(scope)
            and self._control.front.pages.is_page(scope["path"])
        )

    async def _admit(self, scope: Scope) -> None:
        """Put the identity of the sender into the request; raise AccessError for a stranger."""
        control = self._control
        is_public = is_public_path(scope["path"])
        closed = await self._is_closed(is_public=is_public)
        if closed or control.is_insecure:
            control.front.check(scope)
        else:
            control.local.check(scope)
        scope[CLIENT_ADDRESS] = control.front.proxies.client_address(scope)
        if not is_public:
            scope[IDENTITY] = await identify_sender(scope, control, is_closed=closed)

    async def _is_closed(self, *, is_public: bool) -> bool:
        """Whether the installation is closed; public paths are served without a database."""
        installation = self._control.installation
        if is_public and installation.known is not None:
            return installation.known
        try:
            return await installation.is_closed()
        except DatabaseError:
            if is_public:
                return False
            raise


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


def is_public_path(path: str) -> bool:
    """Whether everyone may see what is at this path."""
    return path in PUBLIC_PATHS or path.startswith(PUBLIC_PREFIX)


def bearer_token(credentials: list[bytes]) -> str:
    """The key in the `Authorization` header; KeyInvalid for any other scheme."""
    scheme, _, token = credentials[0].partition(b" ")
    if len(credentials) != 1 or scheme.lower() != b"bearer":
        raise KeyInvalid(ONLY_BEARER)
    return token.strip().decode("latin-1")


async def identify_by_key(text: str, scope: Scope, limits: AccessLimits) -> Identity:
    """The identity that an access key grants; KeyInvalid if it grants none.

    Wrong keys are counted by address. A valid key is accepted from any address: one program with
    an old key must not keep out the others behind the same proxy.
    """
    try:
        key = parse_key(text)
        async with get_autocommit_session() as session:
            stored = check_key(await find_key(session, key.id), key)
    except KeyInvalid as error:
        await limits.count_failed_login(scope[CLIENT_ADDRESS])
        await record(
            scope,
            None,
            action=KEY_REFUSED,
            target=scope["path"],
            status=error.http_status,
            error_code=error.code,
        )
        raise
    if stored.is_use_due:
        async with get_session() as writing, writing.begin():
            await record_key_use(writing, stored.id)
    return identity_of_key(stored)


def identity_of_key(stored: StoredKey) -> Identity:
    """The user of a valid key, with its scopes."""
    scopes = granted_scopes(stored.scopes)
    return Identity(stored.user_id, stored.user_name, scopes, key_id=stored.id)
