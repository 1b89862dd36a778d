"""The load of the queue: jobs that wait and how long, running workers, and when a site is due."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Float, extract, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.feed_load import FeedLoad, feed_load
from siteatlas.insights.webhooks import WebhookLoad, webhook_load
from siteatlas.queue.fair_order import pending_lines
from siteatlas.queue.statuses import ACTIVE_STATUSES, FINAL_STATUSES
from siteatlas.queue.workers import ALIVE_SECONDS
from siteatlas.storage.models import SITEMAP_JOB, Domain, Job, JobStatus, Worker
from siteatlas.storage.statements.domains import SCHEDULED

KEPT_SECONDS = 60.0
DATABASE_SIZE = func.pg_database_size(func.current_database())


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """Jobs by status, the age of the oldest one that could run now, and the living workers.

    A watched site is overdue when its time has come and no scan of it was queued. `feed` is the
    state of the change feed, `webhooks` that of the endpoints that are told of it,
    `database_bytes` the disk space of the database.
    """

    jobs: dict[str, int]
    oldest_pending_seconds: float
    workers: int
    domains_overdue: int
    oldest_overdue_seconds: float
    feed: FeedLoad
    webhooks: WebhookLoad
    database_bytes: int


class EndedJobs:
    """Ended jobs by status, counted once a minute: it means reading most of the table."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._good_until = 0.0

    async def count(self, session: AsyncSession) -> dict[str, int]:
        """The counts, at most a minute old."""
        if time.monotonic() >= self._good_until:
            self._counts = await _count(session, FINAL_STATUSES)
            self._good_until = time.monotonic() + KEPT_SECONDS
        return self._counts


async def queue_load(session: AsyncSession, ended: EndedJobs) -> QueueLoad:
    """The load at this moment, by the clock of the database."""
    overdue, oldest_overdue = await _overdue_domains(session)
    return QueueLoad(
        jobs=await _count(session, ACTIVE_STATUSES) | await ended.count(session),
        oldest_pending_seconds=await oldest_pending_seconds(session),
        workers=await _living_workers(session),
        domains_overdue=overdue,
        oldest_overdue_seconds=oldest_overdue,
        feed=await feed_load(session),
        webhooks=await webhook_load(session),
        database_bytes=int(await session.scalar(select(DATABASE_SIZE)) or 0),
    )


async def count_waiting(session: AsyncSession) -> int:
    """How many jobs wait, for a worker or for their time."""
    return (await _count(session, [JobStatus.PENDING]))[JobStatus.PENDING.value]


async def _count(session: AsyncSession, statuses: Iterable[JobStatus]) -> dict[str, int]:
    """One count per status, each through the index that this status has."""
    counts = (
        select(func.count())
        .select_from(Job)
        .where(Job.status == status, Job.job_type == SITEMAP_JOB)
        .scalar_subquery()
        for status in statuses
    )
    numbers = (await session.execute(select(*counts))).one()
    return {status.value: number for status, number in zip(statuses, numbers, strict=True)}


async def oldest_pending_at(session: AsyncSession) -> datetime | None:
    """Since when the first job that could run now has been waiting; None without such a job."""
    first = pending_lines().c.run_at
    due: datetime | None = await session.scalar(select(func.min(first)).where(first <= func.now()))
    return due


async def oldest_pending_seconds(session: AsyncSession) -> float:
    """Age of the oldest job that is ready to run; one index probe per user and priority."""
    first = pending_lines().c.run_at
    age = extract("epoch", func.now() - func.min(first)).cast(Float)
    seconds = await session.scalar(select(age))
    return max(0.0, float(seconds or 0.0))


async def _overdue_domains(session: AsyncSession) -> tuple[int, float]:
    """The number of overdue watched sites, and by how many seconds the first is overdue."""
    age = extract("epoch", func.now() - func.min(Domain.next_scan_at)).cast(Float)
    statement = select(func.count(), age).where(*SCHEDULED, Domain.next_scan_at < func.now())
    count, seconds = (await session.execute(statement)).one()
    return count, float(seconds or 0.0)


async def seconds_until_due(session: AsyncSession) -> float | None:
    """How long until a watched site is due; zero or less if one is, None without any.

    By the clock of the database, which all processes share.
    """
    remaining = func.extract("epoch", func.min(Domain.next_scan_at) - func.now())
    seconds = (await session.execute(select(remaining).where(*SCHEDULED))).scalar()
    return None if seconds is None else float(seconds)


async def _living_workers(session: AsyncSession) -> int:
    """Count the workers that were seen recently and have slots."""
    since = func.now() - timedelta(seconds=ALIVE_SECONDS)
    alive = (Worker.last_seen_at > since, Worker.slots > 0)
    counted = select(func.count()).select_from(Worker).where(*alive)
    return int(await session.scalar(counted) or 0)
