"""The user who sends a request."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Depends

from siteatlas.storage.models import LOCAL_USER_ID


async def current_user() -> UUID:
    """The user on whose behalf a request is made; the local mode knows only one."""
    return LOCAL_USER_ID


CurrentUser = Annotated[UUID, Depends(current_user)]
