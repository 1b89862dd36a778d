"""Read statements for the sections of a site and the months of its dates, summed over documents.

The counts are kept with each document while it is read (`processor.url_breakdown`), so that no URL
is read here. Documents that are gone are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, Select, Uuid, bindparam, cast, func, select, true
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.selectable import CTE

from siteatlas.storage.tables import SITEMAPS

MAX_SECTIONS = 200
DEFAULT_SECTIONS = 50
MAX_MONTHS = 240
# More are not summed in one request.
MAX_DOCUMENTS = 10_000


@dataclass(frozen=True, slots=True)
class SectionView:
    """The number of URLs in one section, such as `/blog/`; `/` has those in no other."""

    section: str
    url_count: int


@dataclass(frozen=True, slots=True)
class MonthView:
    """The number of URLs whose `lastmod` is in one month, such as `2026-11`, in UTC."""

    month: str
    url_count: int


@dataclass(frozen=True, slots=True)
class SectionsView:
    """How the URLs of a site are distributed, as of the last complete read of each document.

    A document that was never read completely counts as of its last read. URLs in several
    documents are counted several times, missing ones not at all. The rest of the sections has
    `other_url_count`, the rest of the months `other_month_url_count`. `complete` is false if the
    site has more documents than are summed.
    """

    url_count: int
    sitemap_count: int
    complete: bool
    sections: list[SectionView]
    other_url_count: int
    months: list[MonthView]
    other_month_url_count: int
    undated_url_count: int


async def domain_sections(
    session: AsyncSession, domain_id: UUID, *, limit: int = DEFAULT_SECTIONS
) -> SectionsView:
    """The largest sections of a site, and the months of its dates from the first to the last."""
    of_site = {"of_domain": domain_id}
    totals = (await session.execute(_totals(), of_site)).one()
    sections = (await session.execute(_summed("sections"), of_site | {"rows": limit})).all()
    months = (await session.execute(_summed("months"), of_site | {"rows": MAX_MONTHS})).all()
    url_count = int((sections[0].total if sections else 0) + totals.other)
    dated = int((months[0].total if months else 0) + totals.other_months)
    return SectionsView(
        url_count=url_count,
        sitemap_count=min(totals.documents, MAX_DOCUMENTS),
        complete=totals.documents <= MAX_DOCUMENTS,
        sections=[SectionView(row.name, int(row.urls)) for row in sections],
        other_url_count=url_count - sum(int(row.urls) for row in sections),
        months=sorted((MonthView(row.name, int(row.urls)) for row in months), key=_month_of),
        other_month_url_count=dated - sum(int(row.urls) for row in months),
        undated_url_count=int(totals.undated),
    )


def _month_of(view: MonthView) -> str:
    """The order of months."""
    return view.month


def _documents(rows: int) -> CTE:
    """The counts of the documents of a site."""
    return (
        select(SITEMAPS.c.url_breakdown.label("counts"))
        .where(
            SITEMAPS.c.domain_id == bindparam("of_domain", type_=Uuid()),
            SITEMAPS.c.gone_at.is_(None),
            SITEMAPS.c.url_breakdown["sections"].is_not(None),
        )
        .order_by(SITEMAPS.c.id)
        .limit(rows)
        .cte("documents")
    )


@cache
def _totals() -> Select[Any]:
    """The number of documents with counts, up to one too many, and what has no name."""
    documents = _documents(MAX_DOCUMENTS + 1)
    names = ("other", "other_months", "undated")
    counts = (cast(documents.c.counts[name].astext, BigInteger) for name in names)
    sums = (func.coalesce(func.sum(count), 0) for count in counts)
    labelled: list[Any] = [total.label(name) for total, name in zip(sums, names, strict=True)]
    return select(func.count().label("documents"), *labelled)


@cache
def _summed(part: str) -> Select[Any]:
    """The largest sums of one part of the counts by name; `total` is that of all names."""
    documents = _documents(MAX_DOCUMENTS)
    each = (
        func.jsonb_each_text(documents.c.counts[part])
        .table_valued("name", "urls", name="each")
        .render_derived()
    )
    urls = func.sum(cast(each.c.urls, BigInteger))
    return (
        select(each.c.name, urls.label("urls"), func.sum(urls).over().label("total"))
        .select_from(documents)
        .join(each, true())
        .group_by(each.c.name)
        .order_by(urls.desc(), each.c.name)
        .limit(bindparam("rows", type_=BigInteger()))
    )
