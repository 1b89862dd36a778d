"""Read statements for the robots.txt of a site: its versions, and what each of them changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from siteatlas.insights.page_reading import read_page
from siteatlas.insights.pages import CursorScope, Page, bigint_key, page_size
from siteatlas.insights.views import select_view
from siteatlas.storage.models import RobotsFile
from siteatlas.text_diff import line_diff


@dataclass(frozen=True, slots=True)
class RobotsFileView:
    """One version of the robots.txt of an origin.

    `diff` is what differs from the version before, null for the first one that is stored.
    """

    id: int
    origin: str
    http_status: int | None
    truncated: bool
    first_seen_at: datetime
    last_seen_at: datetime
    content: str
    diff: str | None


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
