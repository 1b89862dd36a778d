"""Who sends a request, and what is theirs.

`authentication` puts the identity into the request, and routes ask for it. What belongs to one user
alone, only that user or an admin changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends
from starlette.requests import Request
from starlette.types import Scope as AsgiScope

from siteatlas.access.keys import ALL_SCOPES, Scope
from siteatlas.errors import KeyRequired, NotOwner
from siteatlas.storage.models import LOCAL_USER_ID, Domain


class RequestKey:
    """Where the layers around the routes leave what they know of a request, in its ASGI scope."""

    identity = "siteatlas.identity"
    client_address = "siteatlas.client_address"
    request_id = "siteatlas.request_id"
    error_code = "siteatlas.error_code"
    # Set for a HEAD request, which routes see as GET.
    head_only = "siteatlas.head_only"
    parsed_body = "siteatlas.parsed_body"


@dataclass(frozen=True, slots=True)
class Identity:
    """A user and what they may do; `session_id` is set for a browser that logged in.

    `is_local`: local mode, in which there are no keys and no limits.
    """

    user_id: UUID
    name: str
    scopes: frozenset[Scope]
    key_id: str | None = None
    session_id: UUID | None = None
    is_local: bool = False

    @property
    def is_admin(self) -> bool:
        return Scope.ADMIN in self.scopes

    @property
    def limited_to_user(self) -> UUID | None:
        """The user whose work alone a request may change; None for an admin."""
        return None if self.is_admin else self.user_id

    @property
    def quota_user_id(self) -> UUID | None:
        """The user against whose limit a request counts; None in local mode, which has none."""
        return None if self.is_local else self.user_id


LOCAL_IDENTITY = Identity(LOCAL_USER_ID, "local", ALL_SCOPES, is_local=True)


def identity_of(scope: AsgiScope) -> Identity | None:
    """The identity of a request; None for a public route without a login."""
    identity: Identity | None = scope.get(RequestKey.identity)
    return identity


async def current_identity(request: Request) -> Identity:
    """Who sends this request; KeyRequired if nobody is logged in."""
    identity = identity_of(request.scope)
    if identity is None:
        raise KeyRequired
    return identity


async def current_user(request: Request) -> UUID:
    """The id of the user on whose behalf a request is made."""
    return (await current_identity(request)).user_id


CurrentIdentity = Annotated[Identity, Depends(current_identity)]
CurrentUser = Annotated[UUID, Depends(current_user)]


def require_owner(identity: Identity, *users: UUID) -> None:
    """Raise NotOwner unless this is the work of the user, or the user is an admin."""
    if not is_own(identity, *users):
        raise NotOwner


def is_own(identity: Identity, *users: UUID) -> bool:
    """Whether `require_owner` lets the user change this."""
    return identity.is_admin or identity.user_id in users


def require_right_to_watch(
    identity: Identity,
    known: Domain | None,
    *,
    scan_interval_hours: float | None = None,
    max_pages: int | None = None,
    tags: Iterable[str] = (),
) -> None:
    """Raise NotOwner if watching a site would change how another user watches it.

    A site that nobody watches may be watched by everyone; it keeps its owner.
    """
    if known is None or not known.watched:
        return
    changes_interval = scan_interval_hours not in (None, known.scan_interval_hours)
    changes_tags = not set(tags) <= set(known.tags)
    changes_limit = max_pages not in (None, known.max_pages)
    if known.paused or changes_interval or changes_limit or changes_tags:
        require_owner(identity, known.created_by)
