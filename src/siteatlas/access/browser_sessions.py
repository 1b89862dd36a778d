"""Browser sessions: a login with an access key, kept as a row and a cookie.

The cookie holds 32 random bytes; the row holds their hash. A session ends with its key, after 12
hours without a request, after seven days in any case, and when its key has opened too many others.
"""

from __future__ import annotations

import re
import secrets

from starlette.responses import Response
from starlette.types import Scope

from siteatlas.access.identity import Identity
from siteatlas.access.key_text import hash_secret
from siteatlas.access.request_headers import header_values
from siteatlas.access.scopes import granted_scopes
from siteatlas.storage.session import get_autocommit_session, get_session
from siteatlas.storage.statements.browser_sessions import (
    end_browser_session,
    end_browser_sessions,
    end_excess_sessions,
    find_browser_session,
    insert_browser_session,
    is_login_valid,
    record_session_use,
)

IDLE_SECONDS = 12 * 3600.0
TOTAL_SECONDS = 7 * 86400.0
SESSIONS_PER_KEY = 50
TOKEN_BYTES = 32
COOKIE = "siteatlas_session"
# A browser takes a cookie of this name only over TLS, for this host alone.
TLS_COOKIE = f"__Host-{COOKIE}"
# The cookie with a token as `secrets.token_urlsafe` makes it, among other cookies.
SESSION_COOKIE = re.compile(
    rf"(?:^|;)[ \t]*((?:{TLS_COOKIE}|{COOKIE})=[A-Za-z0-9_-]{{43}})[ \t]*(?=;|$)".encode()
)


async def open_session(identity: Identity) -> str:
    """Open a session for the holder of a key; return the token for the cookie."""
    assert identity.key_id is not None
    token = secrets.token_urlsafe(TOKEN_BYTES)
    async with get_session() as session, session.begin():
        await insert_browser_session(
            session,
            token_hash=hash_secret(token),
            key_id=identity.key_id,
            total_seconds=TOTAL_SECONDS,
        )
        await end_excess_sessions(session, identity.key_id, SESSIONS_PER_KEY)
    return token


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


async def is_still_valid(identity: Identity) -> bool:
    """Whether the key of an identity, and its session if it has one, have not ended since."""
    assert identity.key_id is not None
    async with get_autocommit_session() as session:
        return await is_login_valid(session, identity.key_id, identity.session_id, IDLE_SECONDS)


async def end_session(token: str) -> None:
    """End the session of this token."""
    async with get_session() as session, session.begin():
        await end_browser_session(session, hash_secret(token))


async def end_all_sessions(identity: Identity) -> int:
    """End all sessions of a user; return their number."""
    async with get_session() as session, session.begin():
        return await end_browser_sessions(session, identity.user_id)


def drop_other_cookies(scope: Scope) -> None:
    """Remove all cookies from a request but those of a session.

    The framework parses the cookies of every request, which before Python 3.11.10 takes seconds
    for some cookies of 32 KiB. Other programs on the same host may have set any number of them.
    """
    if header_values(scope, b"cookie"):
        others = [(name, value) for name, value in scope["headers"] if name != b"cookie"]
        kept = b"; ".join(_session_cookies(scope))
        scope["headers"] = [*others, (b"cookie", kept)] if kept else others


def session_token(scope: Scope, *, is_tls: bool) -> str | None:
    """The token in the cookie of a request; over TLS only the cookie that TLS protects counts."""
    wanted = (TLS_COOKIE if is_tls else COOKIE).encode()
    for cookie in _session_cookies(scope):
        name, _, token = cookie.partition(b"=")
        if name == wanted:
            return token.decode()
    return None


def _session_cookies(scope: Scope) -> list[bytes]:
    """The cookies of a request that name a session: `name=token` each."""
    found: list[bytes] = SESSION_COOKIE.findall(b"; ".join(header_values(scope, b"cookie")))
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
    """Let the browser forget its session."""
    name = TLS_COOKIE if is_tls else COOKIE
    response.delete_cookie(name, path="/", secure=is_tls, httponly=True, samesite="lax")
