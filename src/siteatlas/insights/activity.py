"""A mark that differs whenever something changed that a page may show, read in one statement."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import func, select

from siteatlas.storage.autocommit import Reader
from siteatlas.storage.models import FeedHead, Job, JobStatus


class Activity(NamedTuple):
    """The head of the feed, the newest job, and the jobs that run, by their last update."""

    feed_seq: int
    newest_job: int
    running: int
    updated: float

    @property
    def mark(self) -> str:
        """The activity as one word."""
        return "-".join(f"{part:g}" if isinstance(part, float) else str(part) for part in self)


_RUNNING = (Job.status == JobStatus.PROCESSING,)
READ_ACTIVITY = select(
    func.coalesce(select(FeedHead.seq).scalar_subquery(), 0),
    func.coalesce(select(func.max(Job.id)).scalar_subquery(), 0),
    select(func.count()).select_from(Job).where(*_RUNNING).scalar_subquery(),
    func.coalesce(
        select(func.extract("epoch", func.max(Job.updated_at))).where(*_RUNNING).scalar_subquery(),
        0,
    ),
)


async def read_activity(session: Reader) -> Activity:
    """The activity at this moment; touches the rows of running jobs only."""
    seq, newest, running, updated = (await session.execute(READ_ACTIVITY)).one()
    return Activity(int(seq), int(newest), int(running), float(updated))
