"""Read statements for workers: which processes run jobs, and whether there are any."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Float, Interval, bindparam, exists, extract, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.views import select_view
from siteatlas.queue.workers import ALIVE_SECONDS
from siteatlas.storage.autocommit import Reader
from siteatlas.storage.models import Worker

MAX_WORKERS_SHOWN = 1000
ANY_ALIVE = select(
    exists().where(
        Worker.last_seen_at > func.clock_timestamp() - bindparam("age", type_=Interval()),
        Worker.slots > 0,
    )
)


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One process as it last reported; the age is measured by the database's clock."""

    id: str
    hostname: str
    pid: int
    version: str
    slots: int
    running: int
    started_at: datetime
    last_seen_at: datetime
    last_tick_at: datetime | None
    next_tick_at: datetime | None
    seconds_since_seen: float

    @property
    def alive(self) -> bool:
        """Whether it was seen within the last minute and has not stopped since."""
        return self.slots > 0 and self.seconds_since_seen < ALIVE_SECONDS


async def list_workers(session: AsyncSession) -> list[WorkerView]:
    """The registered processes, those seen last first; also those that stopped."""
    age = extract("epoch", func.clock_timestamp() - Worker.last_seen_at).cast(Float)
    statement = select_view(WorkerView, Worker, seconds_since_seen=func.greatest(0.0, age))
    latest = statement.order_by(Worker.last_seen_at.desc(), Worker.id).limit(MAX_WORKERS_SHOWN)
    rows = await session.execute(latest)
    return [WorkerView(*row) for row in rows]


async def any_worker_alive(session: Reader, within_seconds: float = ALIVE_SECONDS) -> bool:
    """Whether a process that works was seen within the last minute."""
    age = timedelta(seconds=within_seconds)
    return bool(await session.scalar(ANY_ALIVE, {"age": age}))
