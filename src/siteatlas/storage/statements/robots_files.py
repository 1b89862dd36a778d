"""Write statements for the robots.txt files of a site: a row for each version of their text."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BindParameter,
    Boolean,
    Integer,
    Text,
    Uuid,
    bindparam,
    func,
    insert,
    select,
    true,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.tables import ROBOTS_FILES


@dataclass(frozen=True, slots=True)
class RobotsText:
    """A robots.txt as an origin gave it; no file is an empty text."""

    origin: str
    content: str
    http_status: int | None
    truncated: bool


@dataclass(frozen=True, slots=True)
class RobotsChange:
    """The text that an origin gave before; the new version is stored."""

    before: str
    http_status_before: int | None


def _recording() -> Any:
    """Note that the last version was seen again, or store a new one; give the one before."""
    files = ROBOTS_FILES
    new: dict[str, BindParameter[Any]] = {
        "domain_id": bindparam("of_domain", type_=Uuid()),
        "origin": bindparam("its_origin", type_=Text()),
        "content_hash": bindparam("its_hash", type_=Text()),
        "content": bindparam("its_content", type_=Text()),
        "http_status": bindparam("its_status", type_=Integer()),
        "truncated": bindparam("is_truncated", type_=Boolean()),
    }
    latest = (
        select(files.c.id, files.c.content_hash, files.c.http_status)
        .where(files.c.domain_id == new["domain_id"], files.c.origin == new["origin"])
        .order_by(files.c.id.desc())
        .limit(1)
        .cte("latest")
    )
    seen = (
        update(files)
        .where(files.c.id == latest.c.id, latest.c.content_hash == new["content_hash"])
        .values(last_seen_at=func.now())
        .returning(files.c.id)
        .cte("seen")
    )
    values = select(*new.values()).where(~select(seen.c.id).exists())
    added = insert(files).from_select(list(new), values).returning(files.c.id).cte("added")
    return select(latest.c.id, latest.c.http_status).select_from(added.outerjoin(latest, true()))


RECORD = _recording()
LOAD_CONTENT = select(ROBOTS_FILES.c.content).where(ROBOTS_FILES.c.id == bindparam("its_id"))


async def record_robots(
    session: AsyncSession, domain_id: UUID, text: RobotsText
) -> RobotsChange | None:
    """Record the robots.txt of an origin; return what it replaced, None if that was the same."""
    values = {
        "of_domain": domain_id,
        "its_origin": text.origin,
        "its_hash": hashlib.sha256(text.content.encode("utf-8", "surrogatepass")).hexdigest(),
        "its_content": text.content,
        "its_status": text.http_status,
        "is_truncated": text.truncated,
    }
    replaced = (await session.execute(RECORD, values)).one_or_none()
    if replaced is None or replaced.id is None:
        return None
    content = await session.scalar(LOAD_CONTENT, {"its_id": replaced.id})
    return RobotsChange(content or "", replaced.http_status)
