"""Finds out who sends a request, before its body is read: by access key, session, or local mode.

Everything but `PUBLIC_PATHS` needs an identity. What an identity may do is up to the access mark of
each route.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from siteatlas.access.front import Front
from siteatlas.access.identity import IDENTITY, LOCAL_IDENTITY, Identity
from siteatlas.access.installation import Installation
from siteatlas.access.key_text import parse_key
from siteatlas.access.keys import check_key
from siteatlas.access.local_mode import LocalMode
from siteatlas.access.request_headers import header_values
from siteatlas.access.scopes import granted_scopes
from siteatlas.errors import KeyInvalid, KeyRequired
from siteatlas.storage.session import get_autocommit_session, get_session
from siteatlas.storage.statements.api_keys import StoredKey, find_key, record_key_use

CLIENT_ADDRESS = "siteatlas.client_address"
PUBLIC_PATHS = frozenset({"/health"})
PUBLIC_PREFIX = "/static/"
POLICY_VIOLATION = 1008
ONLY_BEARER = "Send the access key as Authorization: Bearer KEY."


@dataclass(frozen=True, slots=True)
class AccessControl:
    """What authentication needs to know; `is_insecure`: without keys, everyone may enter."""

    installation: Installation
    local: LocalMode
    front: Front
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
        if scope["type"] == "http":
            await self._admit(scope)
        await self._app(scope, receive, send)

    async def _admit(self, scope: Scope) -> None:
        """Put the identity of the sender into the request; raise AccessError for a stranger."""
        control = self._control
        is_public = is_public_path(scope["path"])
        # What everyone may see is answered without a database.
        closed = control.installation.known if is_public else await control.installation.is_closed()
        if closed or control.is_insecure:
            control.front.check(scope)
        else:
            control.local.check(scope)
        scope[CLIENT_ADDRESS] = control.front.proxies.client_address(scope)
        if not is_public:
            scope[IDENTITY] = await self._identify(scope, is_closed=bool(closed))

    async def _identify(self, scope: Scope, *, is_closed: bool) -> Identity:
        """Who sends the request; KeyRequired if nobody says so."""
        credentials = header_values(scope, b"authorization")
        if credentials:
            return await identify_by_key(bearer_token(credentials))
        if is_closed:
            raise KeyRequired
        return LOCAL_IDENTITY


def is_public_path(path: str) -> bool:
    """Whether everyone may see what is at this path."""
    return path in PUBLIC_PATHS or path.startswith(PUBLIC_PREFIX)


def bearer_token(credentials: list[bytes]) -> str:
    """The key in the `Authorization` header; KeyInvalid for any other scheme."""
    scheme, _, token = credentials[0].partition(b" ")
    if len(credentials) != 1 or scheme.lower() != b"bearer":
        raise KeyInvalid(ONLY_BEARER)
    return token.strip().decode("latin-1")


async def identify_by_key(text: str) -> Identity:
    """The identity that an access key grants; KeyInvalid if it grants none."""
    key = parse_key(text)
    async with get_autocommit_session() as session:
        stored = check_key(await find_key(session, key.id), key)
    if stored.is_use_due:
        async with get_session() as writing, writing.begin():
            await record_key_use(writing, stored.id)
    return identity_of_key(stored)


def identity_of_key(stored: StoredKey) -> Identity:
    """The user of a valid key, with its scopes."""
    scopes = granted_scopes(stored.scopes)
    return Identity(stored.user_id, stored.user_name, scopes, key_id=stored.id)
