"""Records that a suspect runs alone in its process, and clears a suspect that survived.

Both statements take effect only for the claim holder. `claims` selects the suspects and decides
what a death means; `scheduler.isolation` runs them.
"""

from __future__ import annotations

from sqlalchemy import false, true, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.errors import LeaseLost
from siteatlas.queue.fence import IS_CLAIM_HOLDER, Claim
from siteatlas.storage.tables import JOBS

# `updated_at` is left as it is: it tells whether the job has begun (`claims.has_begun`).
MARK_ALONE = update(JOBS).where(IS_CLAIM_HOLDER).values(alone=true()).returning(JOBS.c.id)
CLEAR = update(JOBS).where(IS_CLAIM_HOLDER, JOBS.c.alone).values(alone=false(), rescues=0)


async def mark_alone(session: AsyncSession, claim: Claim) -> None:
    """Record that no other job runs in the process. LeaseLost if not the claim holder."""
    if (await session.execute(MARK_ALONE, claim.fenced)).first() is None:
        raise LeaseLost


async def clear_suspect(session: AsyncSession, claim: Claim) -> None:
    """Forget the deaths of a job that has run alone long enough, before others run beside it."""
    await session.execute(CLEAR, claim.fenced)
