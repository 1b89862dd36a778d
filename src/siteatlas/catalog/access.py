"""Access: keys and their users, browser sessions, rate limits and the audit trail.

A key is looked up by its id and never shown with its hash. Sessions of a browser belong to a key
and end with it. A rate limit is one row per subject: the time until which its requests are paid
off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID, uuid4

from sqlalchemy import (
    ColumnElement,
    Double,
    Select,
    Text,
    bindparam,
    case,
    delete,
    exists,
    func,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from siteatlas.catalog.paging import CursorScope, Page, bigint_key, page_size, read_page, text_key
from siteatlas.catalog.views import (
    Count,
    Example,
    Line,
    Name,
    Shown,
    SmallCount,
    View,
    Word,
    declared,
    one_of,
    select_view,
)
from siteatlas.errors import KeyNotFound
from siteatlas.storage.models import BACKED_UP, ApiKey, AuditEvent, BrowserSession, RateLimit, User
from siteatlas.storage.session import Reader

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


_is_expired = func.coalesce(ApiKey.expires_at <= func.now(), False)
_is_use_due = func.coalesce(
    ApiKey.last_used_at < func.now() - seconds_interval(USE_GRAIN_SECONDS), True
)
_key_columns = (
    ApiKey.id,
    ApiKey.user_id,
    User.name,
    ApiKey.scopes,
    ApiKey.key_hash,
    _is_expired,
    ApiKey.revoked_at.is_not(None),
    _is_use_due,
)


async def find_key(session: Reader, ident: str) -> StoredKey | None:
    """The key with this id, whether or not it is still valid."""
    statement = (
        select(*_key_columns).join(User, User.id == ApiKey.user_id).where(ApiKey.id == ident)
    )
    row = (await session.execute(statement)).one_or_none()
    return None if row is None else StoredKey(*row)


async def any_key_made(session: Reader) -> bool:
    """Whether a key was made since the last reset, valid or not."""
    return bool(await session.scalar(select(exists(select(ApiKey.id)))))


async def any_active_key_with(session: Reader, scope: str) -> bool:
    """Whether a key that is neither expired nor revoked has this scope itself."""
    found = select(ApiKey.id).where(
        ApiKey.scopes.contains([scope]), ApiKey.revoked_at.is_(None), ~_is_expired
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
        .where(ApiKey.id == ident, _is_use_due)
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


@dataclass(frozen=True, slots=True)
class KeyView(View):
    """An access key, without its text."""

    id: Annotated[Word, Example(Shown.key_id)]
    name: Annotated[Name, Example("nightly export")]
    user: Annotated[Name, Example("nightly export")]
    scopes: Annotated[
        list[Annotated[str, one_of(("read", "scan", "admin"))]],
        declared(maxItems=3),
        Example(["read"]),
    ]
    status: Annotated[str, one_of(("active", "expired", "revoked")), Example("active")]
    created_at: Annotated[datetime, Example(Shown.noon)]
    expires_at: datetime | None
    last_used_at: Annotated[datetime | None, Example(Shown.later)]
    revoked_at: datetime | None


_status = case(
    (ApiKey.revoked_at.is_not(None), "revoked"),
    (ApiKey.expires_at <= func.now(), "expired"),
    else_="active",
)
_select_keys = select_view(KeyView, ApiKey, user=User.name, status=_status).join(
    User, User.id == ApiKey.user_id
)


async def list_keys(
    session: AsyncSession, *, limit: int | None = None, cursor: str | None = None
) -> Page[KeyView]:
    """All keys by id, including expired and revoked ones."""
    scope = CursorScope("keys")
    after = scope.read(cursor, text_key)
    statement = _select_keys if after is None else _select_keys.where(ApiKey.id > after)
    return await read_page(
        session,
        statement.order_by(ApiKey.id),
        page_size(limit),
        KeyView,
        lambda row: scope.write(row.id),
    )


async def find_key_view(session: AsyncSession, ident: str) -> KeyView:
    """The key with this id; KeyNotFound if there is none."""
    row = (await session.execute(_select_keys.where(ApiKey.id == ident))).one_or_none()
    if row is None:
        raise KeyNotFound
    return KeyView(*row)


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
        select(BrowserSession.id, *_key_columns[:-1], use_due)
        .join(ApiKey, ApiKey.id == BrowserSession.key_id)
        .join(User, User.id == ApiKey.user_id)
        .where(BrowserSession.token_hash == token_hash, *_has_not_ended(idle_seconds))
    )
    row = (await session.execute(statement)).one_or_none()
    return None if row is None else (row[0], StoredKey(*row[1:]))


def _has_not_ended(idle_seconds: float) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return (
        BrowserSession.expires_at > func.now(),
        BrowserSession.last_used_at > func.now() - seconds_interval(idle_seconds),
    )


async def is_login_valid(
    session: Reader, key_id: str, ident: UUID | None, idle_seconds: float
) -> bool:
    """Whether a key is valid and, if a session id is given, that session has not ended."""
    valid = select(ApiKey.id).where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None), ~_is_expired)
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


async def end_browser_sessions(
    session: AsyncSession, user_id: UUID, ident: UUID | None = None
) -> int:
    """End all sessions of a user, whichever key opened them, or one; return their number."""
    keys = select(ApiKey.id).where(ApiKey.user_id == user_id)
    statement = delete(BrowserSession).where(BrowserSession.key_id.in_(keys))
    if ident is not None:
        statement = statement.where(BrowserSession.id == ident)
    return len((await session.execute(statement.returning(BrowserSession.id))).all())


@dataclass(frozen=True, slots=True)
class BrowserSessionView:
    """A login of the dashboard, without its token."""

    id: UUID
    key_id: str
    key_name: str
    created_at: datetime
    last_used_at: datetime
    expires_at: datetime


async def list_browser_sessions(
    session: AsyncSession, user_id: UUID, *, idle_seconds: float, limit: int
) -> list[BrowserSessionView]:
    """The sessions of a user that have not ended, those used last first."""
    statement = (
        select_view(BrowserSessionView, BrowserSession, key_name=ApiKey.name)
        .join(ApiKey, ApiKey.id == BrowserSession.key_id)
        .where(ApiKey.user_id == user_id, ~_is_expired, *_has_not_ended(idle_seconds))
        .order_by(BrowserSession.last_used_at.desc(), BrowserSession.id)
        .limit(limit)
    )
    return [BrowserSessionView(*row) for row in await session.execute(statement)]


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


async def prune_browser_sessions(session: AsyncSession) -> int:
    """Delete sessions that are over."""
    over = (
        select(BrowserSession.token_hash).where(BrowserSession.expires_at < func.now()).limit(1000)
    )
    statement = delete(BrowserSession).where(BrowserSession.token_hash.in_(over))
    return len((await session.execute(statement.returning(BrowserSession.id))).all())


def _take_statement() -> Select[Any]:
    """Take one request out of a limit: whether it is admitted, and how far ahead the limit is."""
    subject = bindparam("of_subject", type_=Text())
    cost = seconds_interval(bindparam("cost_seconds", type_=Double()))
    burst = seconds_interval(bindparam("burst_seconds", type_=Double()))
    ahead = func.greatest(RateLimit.paid_off_at, func.now()) + cost
    row = insert(RateLimit).values(subject=subject, paid_off_at=func.now() + cost)
    taken = row.on_conflict_do_update(
        index_elements=[RateLimit.subject],
        set_={"paid_off_at": ahead},
        where=ahead <= func.now() + burst,
    ).returning(RateLimit.subject)
    admitted = exists(select(taken.cte("taken").c.subject))
    before = (
        select(func.extract("epoch", RateLimit.paid_off_at - func.now()))
        .where(RateLimit.subject == subject)
        .scalar_subquery()
    )
    return select(admitted.label("admitted"), before.label("ahead_seconds"))


TAKE = _take_statement()


def take_values(subject: str, per_minute: int) -> dict[str, Any]:
    """The parameters of `TAKE` for a limit of so many requests a minute, all at once or spread."""
    return {"of_subject": subject, "cost_seconds": 60.0 / per_minute, "burst_seconds": 60.0}


async def prune_rate_limits(session: AsyncSession) -> int:
    """Delete limits that are not used any more."""
    unused = (
        select(RateLimit.subject)
        .where(RateLimit.paid_off_at < func.now() - seconds_interval(3600))
        .limit(1000)
    )
    statement = delete(RateLimit).where(RateLimit.subject.in_(unused))
    return len((await session.execute(statement.returning(RateLimit.subject))).all())


async def insert_audit_event(session: AsyncSession | AsyncConnection, **values: Any) -> None:
    """Add one event."""
    await session.execute(insert(AuditEvent).values(**values))


async def last_backup_at(session: AsyncSession) -> datetime | None:
    """When the last backup ended; None if the audit trail knows of none."""
    ended = select(func.max(AuditEvent.created_at)).where(AuditEvent.action == BACKED_UP)
    return await session.scalar(ended)


async def prune_audit_events(session: AsyncSession, *, days: float) -> int:
    """Delete events that are older than the retention."""
    old = (
        select(AuditEvent.id)
        .where(AuditEvent.created_at < func.now() - timedelta(days=days))
        .limit(5000)
    )
    statement = delete(AuditEvent).where(AuditEvent.id.in_(old))
    return len((await session.execute(statement.returning(AuditEvent.id))).all())


@dataclass(frozen=True, slots=True)
class AuditEventView(View):
    """Who did what, from where, with what result."""

    id: Annotated[Count, Example(7)]
    created_at: Annotated[datetime, Example(Shown.noon)]
    user_id: Annotated[UUID | None, Example(Shown.user_id)]
    user_name: Annotated[Name | None, Example("ann")]
    key_id: Annotated[Word | None, Example(Shown.key_id)]
    address: Annotated[Word | None, Example("192.0.2.7")]
    action: Annotated[Word, Example("scan_domain")]
    target: Annotated[Line | None, Example(f"/api/v3/sitemap/status/{Shown.job_id}")]
    status: Annotated[SmallCount, Example(202)]
    error_code: Word | None
    request_id: Annotated[Word | None, Example("5f0c8d1e2a3b4c5d6e7f809112233445")]


async def list_audit_events(
    session: AsyncSession,
    *,
    user: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[AuditEventView]:
    """Events, newest first; `user` is a user's name."""
    scope = CursorScope("audit", (user,))
    before = scope.read(cursor, bigint_key)
    statement = select_view(AuditEventView, AuditEvent).order_by(AuditEvent.id.desc())
    if user is not None:
        statement = statement.where(AuditEvent.user_name == user)
    if before is not None:
        statement = statement.where(AuditEvent.id < before)
    return await read_page(
        session, statement, page_size(limit), AuditEventView, lambda row: scope.write(row.id)
    )
