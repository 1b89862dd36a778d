"""Whose work something is: what belongs to one user alone, only that user or an admin changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from uuid import UUID

from siteatlas.access.identity import Identity
from siteatlas.errors import NotOwner
from siteatlas.storage.models import Domain

SHARED_JOB = "Other users submitted this site too. Changing the job needs the scope admin."

OwnerCheck = Callable[[UUID, bool], None]


def require_owner(identity: Identity, created_by: UUID, shared: bool = False) -> None:
    """Raise NotOwner unless this is the work of the user alone, or the user is an admin."""
    if is_own(identity, created_by, shared):
        return
    if created_by != identity.user_id:
        raise NotOwner
    raise NotOwner(SHARED_JOB)


def is_own(identity: Identity, created_by: UUID, shared: bool = False) -> bool:
    """Whether `require_owner` lets the user change this."""
    return identity.is_admin or (created_by == identity.user_id and not shared)


def owner_check(identity: Identity) -> OwnerCheck:
    """The check for statements that find several rows to change."""
    return partial(require_owner, identity)


def require_right_to_watch(
    identity: Identity,
    known: Domain | None,
    *,
    scan_interval_hours: float | None = None,
    max_pages: int | None = None,
    tags: Iterable[str] = (),
) -> None:
    """Raise NotOwner if watching a site would change how another user watches it.

    Whoever watches a site that nobody watches becomes its owner.
    """
    if known is None or not known.watched:
        return
    changes_interval = scan_interval_hours not in (None, known.scan_interval_hours)
    changes_tags = not set(tags) <= set(known.tags)
    changes_limit = max_pages not in (None, known.max_pages)
    if known.paused or changes_interval or changes_limit or changes_tags:
        require_owner(identity, known.created_by)
