"""Who sends a request: the identity that `authentication` puts into it, and that routes ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends
from starlette.requests import Request
from starlette.types import Scope as AsgiScope

from siteatlas.access.scopes import ALL_SCOPES, Scope
from siteatlas.errors import KeyRequired
from siteatlas.storage.models import LOCAL_USER_ID

IDENTITY = "siteatlas.identity"


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
        """Whether this user may do everything."""
        return Scope.ADMIN in self.scopes

    @property
    def quota_user_id(self) -> UUID | None:
        """The user against whose limit a request counts; None in local mode, which has none."""
        return None if self.is_local else self.user_id


LOCAL_IDENTITY = Identity(LOCAL_USER_ID, "local", ALL_SCOPES, is_local=True)


def identity_of(scope: AsgiScope) -> Identity | None:
    """The identity of a request; None for a public route without a login."""
    identity: Identity | None = scope.get(IDENTITY)
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
