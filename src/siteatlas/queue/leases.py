"""Leases: the fence check at the end of every write transaction, and the heartbeat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Row, func, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import JobCancelled, LeaseLost
from siteatlas.queue.claims import LEASE_EXPIRED
from siteatlas.queue.dedup import joined_documents
from siteatlas.queue.fence import ASSIGN_DOMAIN, RENEW_LEASE, Claim
from siteatlas.queue.statuses import ACTIVE_STATUSES
from siteatlas.storage.models import Job, JobAttempt, JobStatus

HEARTBEATS_PER_LEASE = 4
# 1.0 is reserved for completed jobs.
MAX_PROGRESS = 0.99
# One statement, because every scan begins with both.
START = RENEW_LEASE.returning(joined_documents().label("documents"))


async def report_progress(
    session: AsyncSession,
    claim: Claim,
    *,
    lease_seconds: float,
    progress: float,
    result_data: dict[str, Any] | None = None,
    documents_finished: bool = False,
    documents_read: bool = False,
) -> None:
    """The fence: the last statement of every transaction that writes for a job.

    It renews the lease and moves progress forward, never back. No row means that another worker
    has claimed the job: LeaseLost rolls the whole transaction back. A finished document resets the
    count of rescues, one that was read also that of snoozes.
    """
    values = fence_values(claim, lease_seconds, progress) | {
        "result": result_data,
        "finished": documents_finished,
        "read": documents_read,
    }
    _require_claim((await session.execute(RENEW_LEASE, values)).first())


async def report_start(
    session: AsyncSession, claim: Claim, *, lease_seconds: float, progress: float
) -> tuple[str, ...]:
    """The fence of the transaction that opens a scan.

    Returns the documents that submissions have added to recent jobs of the domain.
    """
    values = fence_values(claim, lease_seconds, progress) | {"of_domain": claim.domain_id}
    row = _require_claim((await session.execute(START, values)).first())
    return distinct_documents(row.documents)


def distinct_documents(lists: Sequence[Sequence[str]] | None) -> tuple[str, ...]:
    """The documents of all lists, each once."""
    return tuple(dict.fromkeys(document for some in lists or () for document in some))


def fence_values(claim: Claim, lease_seconds: float, progress: float) -> dict[str, Any]:
    """The values of `RENEW_LEASE` for a transaction that finished no document."""
    return {
        **claim.fenced,
        "lease": timedelta(seconds=lease_seconds),
        "new_progress": min(progress, MAX_PROGRESS),
        "result": None,
        "finished": False,
        "read": False,
    }


def _require_claim(row: Row[Any] | None) -> Row[Any]:
    """The row; LeaseLost if the claim is no longer held, JobCancelled if that was requested."""
    if row is None:
        raise LeaseLost
    if row.cancel_requested_at is not None:
        raise JobCancelled
    return row


async def assign_domain(session: AsyncSession, claim: Claim, domain_id: UUID) -> None:
    """Set the domain of a job that was created without one. LeaseLost if not the claim holder."""
    values = {**claim.fenced, "of_domain": domain_id}
    if (await session.execute(ASSIGN_DOMAIN, values)).first() is None:
        raise LeaseLost


async def forgive_rescues(session: AsyncSession, claims: Iterable[Claim]) -> None:
    """Do not count the rescue of jobs whose worker is alive as a death.

    The record of the attempt is changed too, so this is idempotent. A rescue that was not counted
    is left as it is: earlier deaths stay counted.
    """
    lost = sorted({(claim.id, claim.fence) for claim in claims})
    if not lost:
        return
    forgiven = (
        update(JobAttempt)
        .where(
            tuple_(JobAttempt.job_id, JobAttempt.fence).in_(lost),
            JobAttempt.error_code == LEASE_EXPIRED,
        )
        .values(error_code=LeaseLost.code)
        .returning(JobAttempt.job_id)
        .cte("forgiven")
    )
    await session.execute(
        update(Job)
        .where(Job.id == forgiven.c.job_id, Job.status.in_(ACTIVE_STATUSES), Job.rescues > 0)
        .values(rescues=Job.rescues - 1)
        .execution_options(synchronize_session=False)
    )


async def heartbeat(
    session: AsyncSession, claims: Iterable[Claim], lease_seconds: float
) -> tuple[set[int], set[int]]:
    """Renew the leases of all jobs of a process in one statement.

    Returns the ids of the jobs still held, and of those whose cancellation was requested.
    """
    held = sorted({(claim.id, claim.fence) for claim in claims})
    if not held:
        return set(), set()
    mine = (
        select(Job.id)
        .where(tuple_(Job.id, Job.fence).in_(held), Job.status == JobStatus.PROCESSING)
        .order_by(Job.id)
        .with_for_update(key_share=True)
        .cte("mine")
    )
    statement = (
        update(Job)
        .where(Job.id == mine.c.id)
        .values(lease_until=func.now() + timedelta(seconds=lease_seconds), heartbeat_at=func.now())
        .returning(Job.id, Job.cancel_requested_at)
        .execution_options(synchronize_session=False)
    )
    rows = (await session.execute(statement)).all()
    return {row.id for row in rows}, {row.id for row in rows if row.cancel_requested_at}
