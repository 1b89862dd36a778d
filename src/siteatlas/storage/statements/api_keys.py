"""Statements on access keys and their users. The caller owns the transaction.

What a key looks like and how it is compared is up to `siteatlas.access`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, delete, exists, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.autocommit import Reader
from siteatlas.storage.models import ApiKey, BrowserSession, User

USE_GRAIN_SECONDS = 60


@dataclass(frozen=True, slots=True)
class StoredKey:
    """What is needed to check the key of a request."""

    id: str
    user_id: UUID
    user_name: str
    scopes: list[str]
    key_hash: bytes
    is_expired: bool
    is_revoked: bool
    is_use_due: bool


def seconds_interval(seconds: Any) -> ColumnElement[timedelta]:
    """The SQL interval of a number of seconds."""
    return func.make_interval(0, 0, 0, 0, 0, 0, seconds)


IS_EXPIRED = func.coalesce(ApiKey.expires_at <= func.now(), False)
IS_USE_DUE = func.coalesce(
    ApiKey.last_used_at < func.now() - seconds_interval(USE_GRAIN_SECONDS),
    True,
)
KEY_COLUMNS = (
    ApiKey.id,
    ApiKey.user_id,
    User.name,
    ApiKey.scopes,
    ApiKey.key_hash,
    IS_EXPIRED,
    ApiKey.revoked_at.is_not(None),
    IS_USE_DUE,
)


async def find_key(session: Reader, ident: str) -> StoredKey | None:
    """The key with this id, whether or not it is still valid."""
    statement = select(*KEY_COLUMNS).join(User, User.id == ApiKey.user_id).where(ApiKey.id == ident)
    row = (await session.execute(statement)).one_or_none()
    return None if row is None else StoredKey(*row)


async def any_key_made(session: Reader) -> bool:
    """Whether a key was made since the last reset, valid or not."""
    return bool(await session.scalar(select(exists(select(ApiKey.id)))))


async def any_active_key_with(session: Reader, scope: str) -> bool:
    """Whether a key that is neither expired nor revoked has this scope itself."""
    found = select(ApiKey.id).where(
        ApiKey.scopes.contains([scope]), ApiKey.revoked_at.is_(None), ~IS_EXPIRED
    )
    return bool(await session.scalar(select(exists(found))))


async def find_or_create_user(session: AsyncSession, name: str) -> UUID:
    """The user of this name."""
    statement = insert(User).values(id=uuid4(), name=name).on_conflict_do_nothing()
    await session.execute(statement)
    found = await session.execute(select(User.id).where(User.name == name))
    return found.scalar_one()


async def insert_key(
    session: AsyncSession,
    *,
    ident: str,
    key_hash: bytes,
    name: str,
    user_id: UUID,
    scopes: Sequence[str],
    expires_in_seconds: float | None = None,
) -> bool:
    """Store a key; False if its id is taken."""
    expires_at = (
        None if expires_in_seconds is None else func.now() + seconds_interval(expires_in_seconds)
    )
    statement = insert(ApiKey).values(
        id=ident,
        key_hash=key_hash,
        name=name,
        user_id=user_id,
        scopes=list(scopes),
        expires_at=expires_at,
    )
    stored = await session.execute(statement.on_conflict_do_nothing().returning(ApiKey.id))
    return stored.scalar_one_or_none() is not None


async def record_key_use(session: AsyncSession, ident: str) -> None:
    """Set the time of the last use, at most once a minute."""
    await session.execute(
        update(ApiKey)
        .where(ApiKey.id == ident, IS_USE_DUE)
        .values(last_used_at=func.now())
        .execution_options(synchronize_session=False)
    )


async def revoke_key(session: AsyncSession, ident: str) -> bool:
    """Revoke a key and end its browser sessions; False if there is no such key."""
    statement = (
        update(ApiKey)
        .where(ApiKey.id == ident)
        .values(revoked_at=func.coalesce(ApiKey.revoked_at, func.now()))
        .returning(ApiKey.id)
        .execution_options(synchronize_session=False)
    )
    found = (await session.execute(statement)).scalar_one_or_none()
    await session.execute(delete(BrowserSession).where(BrowserSession.key_id == ident))
    return found is not None


async def delete_all_keys(session: AsyncSession) -> int:
    """Delete every key and every browser session: the installation is open again."""
    await session.execute(delete(BrowserSession))
    return len((await session.execute(delete(ApiKey).returning(ApiKey.id))).all())
