"""Bulk actions on jobs and sites: those that cannot be changed do not stop the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from siteatlas.errors import ConflictError, NotFoundError, NotOwner

ItemT = TypeVar("ItemT")


async def apply_to_each(
    items: Iterable[ItemT], action: Callable[[ItemT], Awaitable[object]]
) -> int:
    """Apply an action to the items one by one; return how many it changed.

    An item that is gone, belongs to another user or is in another state is left alone.
    """
    changed = 0
    for item in items:
        try:
            await action(item)
        except (ConflictError, NotFoundError, NotOwner):
            continue
        changed += 1
    return changed
