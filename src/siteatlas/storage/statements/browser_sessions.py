"""Statements on browser sessions. The caller owns the transaction."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import ColumnElement, Select, delete, exists, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.autocommit import Reader
from siteatlas.storage.models import ApiKey, BrowserSession, User
from siteatlas.storage.statements.api_keys import (
    IS_EXPIRED,
    KEY_COLUMNS,
    USE_GRAIN_SECONDS,
    StoredKey,
    seconds_interval,
)

PRUNED_PER_CALL = 1000


async def insert_browser_session(
    session: AsyncSession, *, token_hash: bytes, key_id: str, total_seconds: float
) -> None:
    """Store a session that was opened with a key."""
    expires_at = func.now() + seconds_interval(total_seconds)
    await session.execute(
        insert(BrowserSession).values(token_hash=token_hash, key_id=key_id, expires_at=expires_at)
    )


async def find_browser_session(
    session: Reader, token_hash: bytes, idle_seconds: float
) -> tuple[UUID, StoredKey] | None:
    """A session that has not ended, and its key, which may have; `is_use_due` is the session's."""
    use_due = BrowserSession.last_used_at < func.now() - seconds_interval(USE_GRAIN_SECONDS)
    statement = (
        select(BrowserSession.id, *KEY_COLUMNS[:-1], use_due)
        .join(ApiKey, ApiKey.id == BrowserSession.key_id)
        .join(User, User.id == ApiKey.user_id)
        .where(BrowserSession.token_hash == token_hash, *_has_not_ended(idle_seconds))
    )
    row = (await session.execute(statement)).one_or_none()
    return None if row is None else (row[0], StoredKey(*row[1:]))


def _has_not_ended(idle_seconds: float) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """The conditions for a session that has neither expired nor been idle for too long."""
    return (
        BrowserSession.expires_at > func.now(),
        BrowserSession.last_used_at > func.now() - seconds_interval(idle_seconds),
    )


async def is_login_valid(
    session: Reader, key_id: str, ident: UUID | None, idle_seconds: float
) -> bool:
    """Whether a key is valid and, if a session id is given, that session has not ended."""
    valid = select(ApiKey.id).where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None), ~IS_EXPIRED)
    if ident is not None:
        opened = select(BrowserSession.id).where(BrowserSession.id == ident)
        valid = valid.where(exists(opened.where(*_has_not_ended(idle_seconds))))
    return bool(await session.scalar(select(exists(valid))))


async def record_session_use(session: AsyncSession, ident: UUID) -> None:
    """Set the time of the last use of a session."""
    await session.execute(
        update(BrowserSession)
        .where(BrowserSession.id == ident)
        .values(last_used_at=func.now())
        .execution_options(synchronize_session=False)
    )


async def end_browser_session(session: AsyncSession, token_hash: bytes) -> None:
    """End one session."""
    await session.execute(delete(BrowserSession).where(BrowserSession.token_hash == token_hash))


async def end_browser_sessions(session: AsyncSession, user_id: UUID) -> int:
    """End all sessions of a user, whichever key opened them; return their number."""
    statement = (
        delete(BrowserSession)
        .where(BrowserSession.key_id.in_(_keys_of(user_id)))
        .returning(BrowserSession.id)
    )
    return len((await session.execute(statement)).all())


async def end_excess_sessions(session: AsyncSession, key_id: str, kept: int) -> None:
    """End the sessions of a key beyond this number: those that were not used for longest."""
    excess = (
        select(BrowserSession.token_hash)
        .where(BrowserSession.key_id == key_id)
        .order_by(BrowserSession.last_used_at.desc(), BrowserSession.created_at.desc())
        .offset(kept)
    )
    await session.execute(
        delete(BrowserSession)
        .where(BrowserSession.token_hash.in_(excess))
        .execution_options(synchronize_session=False)
    )


def _keys_of(user_id: UUID) -> Select[str]:
    """The ids of the keys of a user."""
    return select(ApiKey.id).where(ApiKey.user_id == user_id)


async def prune_browser_sessions(session: AsyncSession) -> int:
    """Delete sessions that are over."""
    over = (
        select(BrowserSession.token_hash)
        .where(BrowserSession.expires_at < func.now())
        .limit(PRUNED_PER_CALL)
    )
    statement = delete(BrowserSession).where(BrowserSession.token_hash.in_(over))
    return len((await session.execute(statement.returning(BrowserSession.id))).all())
