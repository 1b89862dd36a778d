"""Read statements for access keys; never their hashes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import case, func
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import KeyNotFound
from siteatlas.insights.page_reading import read_page
from siteatlas.insights.pages import CursorScope, Page, page_size, text_key
from siteatlas.insights.views import select_view
from siteatlas.storage.models import ApiKey, User


@dataclass(frozen=True, slots=True)
class KeyView:
    """An access key as an administrator sees it; `status` is active, expired or revoked."""

    id: str
    name: str
    user: str
    scopes: list[str]
    status: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


STATUS = case(
    (ApiKey.revoked_at.is_not(None), "revoked"),
    (ApiKey.expires_at <= func.now(), "expired"),
    else_="active",
)
SELECT_KEYS = select_view(KeyView, ApiKey, user=User.name, status=STATUS).join(
    User, User.id == ApiKey.user_id
)


async def list_keys(
    session: AsyncSession, *, limit: int | None = None, cursor: str | None = None
) -> Page[KeyView]:
    """All keys by id, including expired and revoked ones."""
    scope = CursorScope("keys")
    after = scope.read(cursor, text_key)
    statement = SELECT_KEYS if after is None else SELECT_KEYS.where(ApiKey.id > after)
    return await read_page(
        session,
        statement.order_by(ApiKey.id),
        page_size(limit),
        KeyView,
        lambda row: scope.write(row.id),
    )


async def find_key_view(session: AsyncSession, ident: str) -> KeyView:
    """The key with this id; KeyNotFound if there is none."""
    row = (await session.execute(SELECT_KEYS.where(ApiKey.id == ident))).one_or_none()
    if row is None:
        raise KeyNotFound
    return KeyView(*row)
