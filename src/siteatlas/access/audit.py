"""The audit trail: who changed what, from where, with what result. No secrets, no request bodies.

An event is written before the response is sent. Local mode has one user and keeps no trail.
Running a command on the machine needs no key, but is recorded as well.
"""

from __future__ import annotations

import os
import pwd
import socket

from starlette.types import Message, Scope, Send

from siteatlas.access.identity import Identity, RequestKey, identity_of
from siteatlas.access.origin import SAFE_METHODS
from siteatlas.catalog.access import insert_audit_event
from siteatlas.errors import SiteatlasError
from siteatlas.logs import get_logger
from siteatlas.storage.session import AsyncConnection, AsyncSession, get_session

log = get_logger("access")


def audited(scope: Scope, send: Send) -> Send:
    """ASGI `send` that records a request when its response begins."""

    async def record_and_send(message: Message) -> None:
        if message["type"] == "http.response.start" and is_audited(scope):
            await record(
                scope,
                identity_of(scope),
                action=_action(scope),
                target=_target(scope, message),
                status=message["status"],
                error_code=scope.get(RequestKey.error_code),
            )
        await send(message)

    return record_and_send


def is_audited(scope: Scope) -> bool:
    """Whether a request is part of the trail: a known user who is not local changes something.

    Requests without an identity change nothing, and must not be able to fill the trail.
    """
    identity = identity_of(scope)
    return scope["method"] not in SAFE_METHODS and identity is not None and not identity.is_local


async def record(
    scope: Scope,
    identity: Identity | None,
    *,
    action: str,
    target: str | None,
    status: int,
    error_code: str | None = None,
) -> None:
    """Add an event; if the database is away, it is only logged."""
    try:
        async with get_session() as session, session.begin():
            await insert_audit_event(
                session,
                user_id=identity and identity.user_id,
                user_name=identity and identity.name,
                key_id=identity and identity.key_id,
                address=scope.get(RequestKey.client_address),
                action=action,
                target=target,
                status=int(status),
                error_code=error_code,
                request_id=scope.get(RequestKey.request_id),
            )
    except SiteatlasError as error:
        log.warning("audit_event_lost", action=action, target=target, error_code=error.code)


def _action(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "name", None) or scope["method"].lower())


def _target(scope: Scope, message: Message) -> str:
    locations = [value for name, value in message.get("headers", ()) if name == b"location"]
    path = locations[0].decode("latin-1") if locations else str(scope["path"])
    return path.replace("\x00", "")[:500]


async def record_command(
    session: AsyncSession | AsyncConnection, command: str, target: str | None = None
) -> None:
    """Add the event of a command, with the system user and the machine that ran it."""
    await insert_audit_event(
        session,
        user_name=_system_user(),
        address=socket.gethostname(),
        action=command,
        target=target,
        status=200,
    )


def _system_user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
