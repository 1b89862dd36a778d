"""The registry of worker processes, refreshed by their heartbeat."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import delete, func
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import Worker

# A process reports at least this often, however long its leases are.
REPORT_SECONDS = 15.0
# A process that has not reported for this long counts as dead.
ALIVE_SECONDS = 4 * REPORT_SECONDS


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The row of a process in the registry of workers."""

    id: str
    hostname: str
    pid: int
    version: str
    slots: int
    running: int
    last_tick_at: datetime | None = None
    next_tick_at: datetime | None = None


async def report_worker(session: AsyncSession, report: WorkerReport) -> None:
    """Insert or refresh the row of a process."""
    values = {
        "hostname": report.hostname,
        "pid": report.pid,
        "version": report.version,
        "slots": report.slots,
        "running": report.running,
        "last_tick_at": report.last_tick_at,
        "next_tick_at": report.next_tick_at,
    }
    await session.execute(
        insert(Worker)
        .values(id=report.id, **values)
        .on_conflict_do_update(
            index_elements=[Worker.id], set_=values | {"last_seen_at": func.now()}
        )
    )


async def sign_off_worker(session: AsyncSession, report: WorkerReport) -> None:
    """Record that a process shuts down cleanly.

    One that ticked keeps its row, without slots: when the last tick was stays known. Retention
    removes it with the rows of processes that were killed.
    """
    if report.last_tick_at is None:
        await session.execute(delete(Worker).where(Worker.id == report.id))
    else:
        await report_worker(session, replace(report, slots=0, running=0, next_tick_at=None))
