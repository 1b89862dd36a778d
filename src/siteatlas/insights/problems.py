"""Read statements for the problems of a site's documents, by code, with samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, assert_never, cast
from uuid import UUID

from sqlalchemy import Select, literal, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.insights.page_reading import read_page
from siteatlas.insights.pages import CursorScope, Page, page_size
from siteatlas.insights.views import select_view
from siteatlas.scanner.events import ProblemSample
from siteatlas.scanner.problem_codes import meaning_of_problem
from siteatlas.storage.models import DomainProblem, Sitemap


class ProblemState(StrEnum):
    """Which problems to show: current problems, resolved problems, or all."""

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
    after = scope.read(cursor, _parse_problem_position)
    size = page_size(limit)
    statement = _select_problems(domain_id, wanted)
    if after is not None:
        statement = statement.where(
            tuple_(DomainProblem.code, DomainProblem.sitemap_id) > tuple_(*map(literal, after))
        )
    statement = statement.order_by(DomainProblem.code, DomainProblem.sitemap_id)
    return await read_page(
        session, statement, size, _view, lambda row: scope.write(row.code, row.sitemap_id)
    )


def _parse_problem_position(parts: Sequence[str]) -> tuple[str, UUID]:
    """The position in the list of problems, from the parts of a pagination cursor."""
    code, sitemap_id = parts
    return code, UUID(sitemap_id)


def _select_problems(domain_id: UUID, wanted: ProblemFilter) -> Select[*tuple[Any, ...]]:
    """The read statement for the problems of a site that match the filter."""
    statement = (
        select_view(ProblemView, DomainProblem, meaning=DomainProblem.code, sitemap=Sitemap.url)
        .join(Sitemap, Sitemap.id == DomainProblem.sitemap_id)
        .where(DomainProblem.domain_id == domain_id)
    )
    if wanted.code is not None:
        statement = statement.where(DomainProblem.code == wanted.code)
    if wanted.sitemap is not None:
        statement = statement.where(Sitemap.url == wanted.sitemap)
    match wanted.state:
        case ProblemState.CURRENT:
            return statement.where(DomainProblem.resolved_at.is_(None))
        case ProblemState.RESOLVED:
            return statement.where(DomainProblem.resolved_at.is_not(None))
        case ProblemState.ALL:
            return statement
        case _:
            assert_never(wanted.state)


def _view(*row: Any) -> ProblemView:
    """The view of a row; it has the code where the meaning goes, and samples as they are stored."""
    view = ProblemView(*row)
    samples = [ProblemSample(**sample) for sample in cast("list[dict[str, Any]]", view.samples)]
    return replace(view, meaning=meaning_of_problem(view.code), samples=samples)
