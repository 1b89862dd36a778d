"""Puts back jobs that were just claimed, in the transaction of the claim.

Nobody else has seen such a claim, so nothing of it remains: no attempt, no fence, no record.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from sqlalchemy import Interval, bindparam, func, null, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.queue.fair_order import queue_literal
from siteatlas.queue.fence import IS_CLAIM_HOLDER, Claim
from siteatlas.storage.models import JobStatus
from siteatlas.storage.tables import JOBS

PUT_BACK = (
    update(JOBS)
    .where(IS_CLAIM_HOLDER)
    .values(
        status=queue_literal(JobStatus.PENDING),
        fence=JOBS.c.fence - queue_literal(1),
        attempt=JOBS.c.attempt - queue_literal(1),
        run_at=func.coalesce(func.now() + bindparam("pause", type_=Interval()), JOBS.c.run_at),
        worker_id=null(),
        lease_until=null(),
        heartbeat_at=null(),
        started_at=null(),
        updated_at=func.now(),
    )
)


async def put_back(session: AsyncSession, pauses: Mapping[Claim, float | None]) -> None:
    """Make these jobs pending again, each due after its pause in seconds; None: as before.

    Only in the transaction that claimed them: a fence that others may have seen never decreases.
    """
    if pauses:
        rows = [
            {**claim.fenced, "pause": None if pause is None else timedelta(seconds=pause)}
            for claim, pause in pauses.items()
        ]
        await session.execute(PUT_BACK, rows)
