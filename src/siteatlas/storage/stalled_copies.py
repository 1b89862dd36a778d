"""Ends statements whose client disappeared in the middle of them: no timeout of the server does.

A backend that waits for the client inside COPY ignores every timeout of PostgreSQL. So does one
that has parsed a statement and waits for its parameters: the driver sends the two in turn, and
only a backend at the end of a statement counts as idle. Their uncommitted rows and locks
block others: the next writer of the same documents, and rescues, which skip locked jobs.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Select, column, func, or_, select, table
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.engine import APPLICATION_NAME, BACKUP_NAME
from siteatlas.storage.models import SitemapUrl
from siteatlas.storage.statements.url_stream import COPY_SECONDS

# A living worker gives up its COPY before that, and sends parameters at once.
STALLED_SECONDS = COPY_SECONDS + 10
# Programs with which an operator restores or loads the table, for as long as it takes.
TOOLS = ("psql", "pg_restore", BACKUP_NAME)
ACTIVITY = table(
    "pg_stat_activity",
    column("pid"),
    column("datname"),
    column("usename"),
    column("application_name"),
    column("state"),
    column("wait_event"),
    column("query"),
    column("query_start"),
)


def _end_stalled() -> Select[tuple[bool]]:
    """Only of our own role: others can be neither seen nor ended without more rights."""
    about = ACTIVITY.c
    ours = about.application_name.like(f"{APPLICATION_NAME}%")
    copy = about.query.like(f"COPY%{SitemapUrl.__tablename__}%")
    return select(func.pg_terminate_backend(about.pid)).where(
        about.datname == func.current_database(),
        about.usename == func.session_user(),
        about.state == "active",
        about.wait_event == "ClientRead",
        or_(ours, copy),
        about.application_name.not_in(TOOLS),
        about.query_start < func.now() - timedelta(seconds=STALLED_SECONDS),
    )


END_STALLED = _end_stalled()


async def terminate_stalled_copies(session: AsyncSession) -> int:
    """End the backends of clients that froze or vanished in a statement; how many there were."""
    return len((await session.execute(END_STALLED)).all())
