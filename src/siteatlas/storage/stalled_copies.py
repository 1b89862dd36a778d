"""Ends COPY statements whose client is gone: no limit of the server does.

A backend that waits for the client inside COPY ignores every timeout of PostgreSQL. The rows that
it holds, not committed, are in the way of whoever writes the same documents next.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Select, column, func, select, table
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import SitemapUrl
from siteatlas.storage.url_stream import COPY_SECONDS

# A living worker gives up its COPY before that.
STALLED_SECONDS = COPY_SECONDS + 10
ACTIVITY = table(
    "pg_stat_activity",
    column("pid"),
    column("datname"),
    column("usename"),
    column("state"),
    column("wait_event"),
    column("query"),
    column("query_start"),
)


def _end_stalled() -> Select[tuple[bool]]:
    """Only of our own role: others can be neither seen nor ended without more rights."""
    about = ACTIVITY.c
    return select(func.pg_terminate_backend(about.pid)).where(
        about.datname == func.current_database(),
        about.usename == func.session_user(),
        about.state == "active",
        about.wait_event == "ClientRead",
        about.query.like(f"COPY%{SitemapUrl.__tablename__}%"),
        about.query_start < func.now() - timedelta(seconds=STALLED_SECONDS),
    )


END_STALLED = _end_stalled()


async def terminate_stalled_copies(session: AsyncSession) -> int:
    """End the backends of clients that froze or vanished inside a COPY; how many there were."""
    return len((await session.execute(END_STALLED)).all())
