"""Problems of all sites together, by code; lists of one site are in `problems.py`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.scanner.problem_codes import meaning_of_problem
from siteatlas.storage.models import Domain, DomainProblem

SITES_SHOWN = 5
KEPT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ProblemTotal:
    """One kind of problem: how often it was found, in how many documents of how many sites."""

    code: str
    meaning: str | None
    count: int
    documents: int
    domains: int
    since: datetime
    largest: list[str]


class ProblemTotals:
    """Current problems by code, counted once a minute: it means reading all of them.

    The caller sees to it that `read` runs once at a time.
    """

    def __init__(self) -> None:
        self._totals: list[ProblemTotal] = []
        self._good_until = 0.0

    async def read(self, session: AsyncSession) -> list[ProblemTotal]:
        """The totals, at most a minute old."""
        if time.monotonic() >= self._good_until:
            self._totals = await _total_problems(session)
            self._good_until = time.monotonic() + KEPT_SECONDS
        return self._totals


async def _total_problems(session: AsyncSession) -> list[ProblemTotal]:
    """Current problems by code, the most widespread first, with the sites that have most."""
    ranked = (
        select(
            DomainProblem.code,
            Domain.domain,
            func.sum(DomainProblem.count).label("count"),
            func.count().label("documents"),
            func.min(DomainProblem.first_seen_at).label("since"),
        )
        .join(Domain, Domain.id == DomainProblem.domain_id)
        .where(DomainProblem.resolved_at.is_(None), Domain.deleted_at.is_(None))
        .group_by(DomainProblem.code, Domain.domain)
        .subquery("ranked")
    )
    largest = func.array_agg(
        aggregate_order_by(ranked.c.domain, ranked.c.count.desc(), ranked.c.domain)
    )
    statement = (
        select(
            ranked.c.code,
            func.sum(ranked.c.count),
            func.sum(ranked.c.documents),
            func.count(),
            func.min(ranked.c.since),
            largest[1:SITES_SHOWN],
        )
        .group_by(ranked.c.code)
        .order_by(func.count().desc(), ranked.c.code)
    )
    rows = (await session.execute(statement)).all()
    return [
        ProblemTotal(
            row[0], meaning_of_problem(row[0]), int(row[1]), int(row[2]), row[3], row[4], row[5]
        )
        for row in rows
    ]
