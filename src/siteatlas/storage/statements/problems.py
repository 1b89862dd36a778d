"""Write statements for problems: found by a read of a document, or resolved."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Text, Uuid, any_, bindparam, exists, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.tables import DOMAIN_PROBLEMS, SITEMAPS


@dataclass(frozen=True, slots=True)
class FoundProblem:
    """One kind of problem in one document, with samples as they are stored."""

    sitemap_id: UUID
    code: str
    count: int
    samples: list[dict[str, Any]]


def _record_statement() -> Any:
    """The upsert of one problem; its domain is taken from the stored document."""
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
    """The UPDATE that resolves problems that completely read documents no longer have."""
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


# Statements of every scan are made once: making one costs as much as running it.
RECORD = _record_statement()
RESOLVE = _resolve_statement()


async def record_problems(
    session: AsyncSession,
    scan_id: int,
    problems: Sequence[FoundProblem],
    read_completely: Collection[UUID],
) -> None:
    """Store the problems found; resolve those that `read_completely` documents no longer have."""
    ordered = sorted(problems, key=lambda problem: (problem.sitemap_id, problem.code))
    if ordered:
        await session.execute(RECORD, [_values(problem, scan_id) for problem in ordered])
    if read_completely:
        values = {
            "read_ids": sorted(read_completely),
            "sitemap_ids": [problem.sitemap_id for problem in ordered],
            "codes": [problem.code for problem in ordered],
        }
        await session.execute(RESOLVE, values)


def _values(problem: FoundProblem, scan_id: int) -> dict[str, Any]:
    """The parameters of the statement that records a problem."""
    return {
        "of_sitemap": problem.sitemap_id,
        "of_code": problem.code,
        "found": problem.count,
        "shown": problem.samples,
        "of_scan": scan_id,
    }
