"""Problems of documents: recorded or resolved by a read, listed per site, totalled over all sites.

A problem is one row per document and code. A complete read that no longer finds it resolves it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, assert_never, cast
from uuid import UUID

from pydantic import Field
from sqlalchemy import (
    ARRAY,
    Select,
    Text,
    Uuid,
    any_,
    bindparam,
    exists,
    func,
    literal,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.paging import CursorScope, Page, page_size, read_page
from siteatlas.catalog.views import (
    Count,
    Example,
    Line,
    Shown,
    SmallCount,
    Url,
    View,
    Word,
    declared,
    select_view,
)
from siteatlas.scanner.events import ProblemSample
from siteatlas.scanner.problem_codes import ProblemCode, meaning_of_problem
from siteatlas.scanner.reading.entries import MAX_SAMPLES
from siteatlas.storage.models import DomainProblem, Sitemap
from siteatlas.storage.schema import DOMAIN_PROBLEMS, SITEMAPS


@dataclass(frozen=True, slots=True)
class FoundProblem:
    """One kind of problem in one document, with samples as they are stored."""

    sitemap_id: UUID
    code: str
    count: int
    samples: list[dict[str, Any]]


async def record_problems(
    session: AsyncSession,
    scan_id: int,
    problems: Sequence[FoundProblem],
    read_completely: Collection[UUID],
) -> None:
    """Store the problems found; resolve those that `read_completely` documents no longer have."""
    ordered = sorted(problems, key=lambda problem: (problem.sitemap_id, problem.code))
    if ordered:
        await session.execute(_record, [_values(problem, scan_id) for problem in ordered])
    if read_completely:
        values = {
            "read_ids": sorted(read_completely),
            "sitemap_ids": [problem.sitemap_id for problem in ordered],
            "codes": [problem.code for problem in ordered],
        }
        await session.execute(_resolve, values)


def _values(problem: FoundProblem, scan_id: int) -> dict[str, Any]:
    return {
        "of_sitemap": problem.sitemap_id,
        "of_code": problem.code,
        "found": problem.count,
        "shown": problem.samples,
        "of_scan": scan_id,
    }


def _record_statement() -> Any:
    scan = bindparam("of_scan", type_=DOMAIN_PROBLEMS.c.last_scan_id.type)
    row = select(
        SITEMAPS.c.id,
        bindparam("of_code", type_=Text()),
        SITEMAPS.c.domain_id,
        bindparam("found", type_=DOMAIN_PROBLEMS.c.count.type),
        bindparam("shown", type_=DOMAIN_PROBLEMS.c.samples.type),
        scan,
        scan,
    ).where(SITEMAPS.c.id == bindparam("of_sitemap", type_=Uuid()))
    names = ["sitemap_id", "code", "domain_id", "count", "samples", "first_scan_id", "last_scan_id"]
    statement = insert(DOMAIN_PROBLEMS).from_select(names, row)
    new = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=[DOMAIN_PROBLEMS.c.sitemap_id, DOMAIN_PROBLEMS.c.code],
        set_={
            "count": new.count,
            "samples": new.samples,
            "last_scan_id": new.last_scan_id,
            "last_seen_at": func.now(),
            "resolved_at": None,
        },
    )


def _resolve_statement() -> Any:
    pairs = func.unnest(
        bindparam("sitemap_ids", type_=ARRAY(Uuid())), bindparam("codes", type_=ARRAY(Text()))
    )
    found = pairs.table_valued("sitemap_id", "code", name="found").render_derived()
    still_there = exists().where(
        found.c.sitemap_id == DOMAIN_PROBLEMS.c.sitemap_id, found.c.code == DOMAIN_PROBLEMS.c.code
    )
    return (
        update(DOMAIN_PROBLEMS)
        .where(
            DOMAIN_PROBLEMS.c.sitemap_id == any_(bindparam("read_ids", type_=ARRAY(Uuid()))),
            DOMAIN_PROBLEMS.c.resolved_at.is_(None),
            ~still_there,
        )
        .values(resolved_at=func.now())
    )


_record = _record_statement()
_resolve = _resolve_statement()


_count_repeated = select(func.coalesce(func.sum(DOMAIN_PROBLEMS.c.count), 0)).where(
    DOMAIN_PROBLEMS.c.domain_id == bindparam("of_domain", type_=Uuid()),
    DOMAIN_PROBLEMS.c.code == ProblemCode.DUPLICATE_URL.value,
    DOMAIN_PROBLEMS.c.resolved_at.is_(None),
)


async def count_repeated_urls(session: AsyncSession, domain_id: UUID) -> int:
    """How many URLs of a site its documents list again, which its counters leave out."""
    return int(await session.scalar(_count_repeated, {"of_domain": domain_id}) or 0)


class ProblemState(StrEnum):
    """Which problems to show: current problems, resolved problems, or all."""

    CURRENT = "current"
    RESOLVED = "resolved"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class SampleView(View, ProblemSample):
    """One occurrence of a problem in a document; unknown fields are null."""

    url: Annotated[Line | None, Field(description="The page, truncated after 500 characters.")]
    value: Annotated[
        Line | None, Field(description="The value as listed, truncated after 200 characters.")
    ]
    entry: Annotated[
        SmallCount | None, Field(description="The number of the entry, starting at 1.")
    ]


@dataclass(frozen=True, slots=True)
class ProblemView(View):
    """One kind of problem in one document, as of the last read that found it."""

    code: Annotated[Word, Example("lastmod_invalid")]
    meaning: Annotated[
        Line | None, Example("a `lastmod` that is not a date; the entry is kept without it")
    ]
    sitemap: Annotated[Url, Example("https://example.com/sitemap.xml")]
    sitemap_id: Annotated[UUID, Example(Shown.sitemap_id)]
    count: Annotated[Count, Example(1)]
    samples: Annotated[
        list[SampleView],
        declared(maxItems=MAX_SAMPLES),
        Example([{"url": "https://example.com/about", "value": "yesterday", "entry": 12}]),
    ]
    first_scan_id: Annotated[Count, Example(3)]
    last_scan_id: Annotated[Count, Example(7)]
    first_seen_at: Annotated[datetime, Example(Shown.noon)]
    last_seen_at: Annotated[datetime, Example(Shown.later)]
    resolved_at: Annotated[
        datetime | None,
        Field(description="When a complete read of the document no longer found the problem."),
    ]


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
    code, sitemap_id = parts
    return code, UUID(sitemap_id)


def _select_problems(domain_id: UUID, wanted: ProblemFilter) -> Select[*tuple[Any, ...]]:
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
    samples = [
        SampleView(*map(sample.get, ("url", "value", "entry")))
        for sample in cast("list[dict[str, Any]]", view.samples)
    ]
    return replace(view, meaning=meaning_of_problem(view.code), samples=samples)
