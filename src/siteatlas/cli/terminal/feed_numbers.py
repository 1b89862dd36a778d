"""Checks numbers of the change feed that users type."""

from __future__ import annotations

from siteatlas.errors import InputError
from siteatlas.insights.feed_positions import read_head
from siteatlas.storage.session import AsyncSession


async def require_reached(session: AsyncSession, moment: object) -> None:
    """Refuse a number that the change feed has not reached; anything but a number passes."""
    if isinstance(moment, int) and moment > (head := await read_head(session)).seq:
        raise InputError(head.limit_text)
