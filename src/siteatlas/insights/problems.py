"""Reading problems: what is wrong in the documents of a site, by code, with samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import Row, Select, literal, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.page_reading import read_page
from siteatlas.insights.pages import CursorScope, Page, page_size
from siteatlas.scanner.events import ProblemSample
from siteatlas.scanner.problem_codes import meaning_of_problem
from siteatlas.storage.models import DomainProblem, Sitemap


class ProblemState(StrEnum):
    """Which problems to show: those of the last reads, those that are over, or both."""

    CURRENT = "current"
    RESOLVED = "resolved"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class ProblemView:
    """One kind of problem in one document; `sitemap` is the URL of the document."""

    code: str
    meaning: str | None
    sitemap: str
    sitemap_id: UUID
    count: int
    samples: list[ProblemSample]
    first_scan_id: int
    last_scan_id: int
    first_seen_at: datetime
    last_seen_at: datetime
    resolved_at: datetime | None


@dataclass(frozen=True, slots=True)
class ProblemFilter:
    """What to show; `sitemap` is the URL of a document."""

    code: str | None = None
    sitemap: str | None = None
    state: ProblemState = ProblemState.CURRENT


async def list_problems(
    session: AsyncSession,
    domain_id: UUID,
    wanted: ProblemFilter = ProblemFilter(),
    *,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[ProblemView]:
    """The problems of a site in the order of (code, sitemap)."""
    filters = (domain_id, wanted.code, wanted.sitemap, wanted.state.value)
    scope = CursorScope("problems", filters)
    after = scope.read(cursor, _key)
    size = page_size(limit)
    statement = _problems(domain_id, wanted)
    if after is not None:
        statement = statement.where(
            tuple_(DomainProblem.code, DomainProblem.sitemap_id) > tuple_(*map(literal, after))
        )
    statement = statement.order_by(DomainProblem.code, DomainProblem.sitemap_id)
    return await read_page(
        session, statement, size, _view, lambda row: scope.write(row[0].code, row[0].sitemap_id)
    )


def _key(parts: Sequence[str]) -> tuple[str, UUID]:
    code, sitemap_id = parts
    return code, UUID(sitemap_id)


def _problems(domain_id: UUID, wanted: ProblemFilter) -> Select[DomainProblem, str]:
    statement = (
        select(DomainProblem, Sitemap.url)
        .join(Sitemap, Sitemap.id == DomainProblem.sitemap_id)
        .where(DomainProblem.domain_id == domain_id)
    )
    if wanted.code is not None:
        statement = statement.where(DomainProblem.code == wanted.code)
    if wanted.sitemap is not None:
        statement = statement.where(Sitemap.url == wanted.sitemap)
    if wanted.state is ProblemState.CURRENT:
        statement = statement.where(DomainProblem.resolved_at.is_(None))
    elif wanted.state is ProblemState.RESOLVED:
        statement = statement.where(DomainProblem.resolved_at.is_not(None))
    return statement


def _view(row: Row[DomainProblem, str]) -> ProblemView:
    problem, sitemap = row
    return ProblemView(
        code=problem.code,
        meaning=meaning_of_problem(problem.code),
        sitemap=sitemap,
        sitemap_id=problem.sitemap_id,
        count=problem.count,
        samples=[ProblemSample(**sample) for sample in problem.samples],
        first_scan_id=problem.first_scan_id,
        last_scan_id=problem.last_scan_id,
        first_seen_at=problem.first_seen_at,
        last_seen_at=problem.last_seen_at,
        resolved_at=problem.resolved_at,
    )
