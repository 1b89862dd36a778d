"""The robots.txt of a site: its versions as scans found them, and what each of them changed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field
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
from sqlalchemy.orm import aliased

from siteatlas.catalog.paging import CursorScope, Page, bigint_key, page_size, read_page
from siteatlas.catalog.views import (
    Count,
    Example,
    Shown,
    SmallCount,
    Url,
    View,
    declared,
    select_view,
)
from siteatlas.storage.models import RobotsFile
from siteatlas.storage.schema import ROBOTS_FILES
from siteatlas.text import line_diff


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
    replaced = (await session.execute(_record, values)).one_or_none()
    if replaced is None or replaced.id is None:
        return None
    content = await session.scalar(_load_content, {"its_id": replaced.id})
    return RobotsChange(content or "", replaced.http_status)


def _record_statement() -> Any:
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


_record = _record_statement()
_load_content = select(ROBOTS_FILES.c.content).where(ROBOTS_FILES.c.id == bindparam("its_id"))


FileText = Annotated[str, declared(maxLength=1_000_000)]


@dataclass(frozen=True, slots=True)
class RobotsFileView(View):
    """One version of the robots.txt of an origin of a site."""

    id: Annotated[Count, Example(3)]
    origin: Annotated[Url, Example("https://www.example.com")]
    http_status: Annotated[SmallCount | None, Example(200)]
    truncated: Annotated[
        bool,
        Example(False),
        Field(description="True if the file is longer than what is read of it."),
    ]
    first_seen_at: Annotated[datetime, Example(Shown.noon)]
    last_seen_at: Annotated[datetime, Example(Shown.later)]
    content: Annotated[FileText, Example("User-agent: *\n")]
    diff: Annotated[
        FileText | None,
        Example("-Disallow: /\n+User-agent: *"),
        Field(
            description="What differs from the version before, line by line; null for the first "
            "one."
        ),
    ]


async def list_robots_files(
    session: AsyncSession,
    domain_id: UUID,
    *,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[RobotsFileView]:
    """The versions of the robots.txt files of a site, newest first."""
    scope = CursorScope("robots", (domain_id,))
    before = scope.read(cursor, bigint_key)
    earlier = aliased(RobotsFile)
    previous = (
        select(earlier.content)
        .where(
            earlier.domain_id == RobotsFile.domain_id,
            earlier.origin == RobotsFile.origin,
            earlier.id < RobotsFile.id,
        )
        .order_by(earlier.id.desc())
        .limit(1)
        .correlate(RobotsFile)
        .scalar_subquery()
    )
    statement = select_view(RobotsFileView, RobotsFile, diff=previous)
    statement = statement.where(RobotsFile.domain_id == domain_id)
    if before is not None:
        statement = statement.where(RobotsFile.id < before)
    newest = statement.order_by(RobotsFile.id.desc())
    return await read_page(
        session, newest, page_size(limit), _robots_file_view, lambda row: scope.write(row.id)
    )


def _robots_file_view(*row: Any) -> RobotsFileView:
    """The view of a row that has the text of the version before in the place of the diff."""
    view = RobotsFileView(*row)
    previous = view.diff
    return view if previous is None else replace(view, diff=line_diff(previous, view.content))
