"""Access keys: list, create, revoke."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response, status

from siteatlas.access.identity import CurrentIdentity
from siteatlas.access.keys import (
    SECONDS_A_DAY,
    KeyRequest,
    create_key,
    requested_scopes,
    revoke,
)
from siteatlas.access.limits import ADMIN
from siteatlas.api.context import Context, ReadSession, WriteSession
from siteatlas.api.limits import ParsedBodyRoute
from siteatlas.api.openapi import LOCATION, problems
from siteatlas.api.schemas.base import QueryShape
from siteatlas.api.schemas.keys import AuditQuery, KeyCreated, KeyCreation
from siteatlas.catalog.access import (
    AuditEventView,
    KeyView,
    find_key_view,
    list_audit_events,
    list_keys,
)
from siteatlas.catalog.paging import Page
from siteatlas.catalog.views import Shown, extended
from siteatlas.logs import get_logger

audit_router = APIRouter(prefix="/api/v3/audit", tags=["access"])


@audit_router.get(
    "",
    dependencies=[ADMIN],
    summary="Read the audit trail",
    responses=problems(),
)
async def get_audit_events(
    query: Annotated[AuditQuery, Query()], session: ReadSession
) -> Page[AuditEventView]:
    """Requests that changed something, or tried to, and refused keys; newest first."""
    return await list_audit_events(session, user=query.user, **query.page)


log = get_logger("api")
router = APIRouter(prefix="/api/v3/keys", tags=["access"], route_class=ParsedBodyRoute)

KeyIdent = Annotated[
    str,
    Path(
        max_length=64,
        pattern="^[a-z0-9]+$",
        description="The id of a key.",
        examples=[Shown.key_id],
    ),
]


@router.get(
    "",
    dependencies=[ADMIN],
    summary="List access keys",
    responses=problems(),
)
async def get_keys(query: Annotated[QueryShape, Query()], session: ReadSession) -> Page[KeyView]:
    """All access keys, including expired and revoked ones; never their text."""
    return await list_keys(session, **query.page)


@router.post(
    "",
    dependencies=[ADMIN],
    summary="Create an access key",
    status_code=status.HTTP_201_CREATED,
    responses={201: LOCATION, **problems()},
)
async def post_key(
    body: KeyCreation, response: Response, context: Context, session: WriteSession
) -> KeyCreated:
    """Create an access key. Its text is only in this response.

    The first key closes the installation: from then on every request needs a key.
    """
    days = body.expires_in_days
    request = KeyRequest(
        body.name,
        requested_scopes(body.scopes),
        user=body.user,
        expires_in_seconds=None if days is None else days * SECONDS_A_DAY,
    )
    async with session.begin():
        key = await create_key(session, request)
        view = await find_key_view(session, key.id)
    context.installation.close()
    log.info("key_created", key_id=key.id)
    response.headers["Location"] = f"{router.prefix}/{key.id}"
    return extended(KeyCreated, view, key=key.text.get_secret_value())


@router.get(
    "/{key_id}",
    dependencies=[ADMIN],
    summary="Show an access key",
    responses=problems(404),
)
async def get_key(key_id: KeyIdent, session: ReadSession) -> KeyView:
    """One access key, without its text."""
    return await find_key_view(session, key_id)


@router.delete(
    "/{key_id}",
    dependencies=[ADMIN],
    summary="Revoke an access key",
    status_code=status.HTTP_204_NO_CONTENT,
    responses=problems(404, 409),
)
async def revoke_key(key_id: KeyIdent, identity: CurrentIdentity, session: WriteSession) -> None:
    """Revoke an access key and end its browser sessions. It stays in the list.

    The last active key with the scope `admin` cannot revoke itself.
    """
    async with session.begin():
        await revoke(session, key_id, by_key=identity.key_id)
    log.info("key_revoked", key_id=key_id)
