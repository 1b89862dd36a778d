"""What earlier reads of a document have left, as far as the next one needs it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.tables import SITEMAPS


class LastRead(NamedTuple):
    """The columns of a document that the end of a read needs; the defaults are of a new one."""

    read_version: int | None = None
    last_complete_at: datetime | None = None
    validator_lies: int = 0
    lastmod_trusted: bool = True
    lastmod_streak: int = 0
    lastmod_sample: Mapping[str, int] | None = None
    type: str | None = None


NEVER_READ = LastRead()
LOAD = select(*(SITEMAPS.c[name] for name in LastRead._fields)).where(
    SITEMAPS.c.id == bindparam("sitemap")
)


async def load_last_read(session: AsyncSession, sitemap_id: UUID) -> LastRead:
    """What is stored of the reads of a document."""
    row = (await session.execute(LOAD, {"sitemap": sitemap_id})).one_or_none()
    return LastRead(*row) if row else NEVER_READ
