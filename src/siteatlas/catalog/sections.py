"""Sections and months of a site: how its URLs are distributed, summed over its documents.

Each document has its counts, which are stored while it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field
from sqlalchemy import BigInteger, Select, Uuid, bindparam, cast, func, select, true
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.selectable import CTE

from siteatlas.catalog.views import Count, Example, Name, View, Word, declared
from siteatlas.storage.schema import SITEMAPS

MAX_SECTIONS = 200
DEFAULT_SECTIONS = 50
MAX_MONTHS = 240
# More are not summed in one request.
MAX_DOCUMENTS = 10_000


@dataclass(frozen=True, slots=True)
class SectionView(View):
    """One section of a site."""

    section: Annotated[
        Name,
        Example("/blog/"),
        Field(description="The first segment of the path if anything follows it, otherwise `/`."),
    ]
    url_count: Annotated[Count, Example(1200)]


@dataclass(frozen=True, slots=True)
class MonthView(View):
    """One month of the dates of a site."""

    month: Annotated[Word, Example("2025-11")]
    url_count: Annotated[Count, Example(310)]


@dataclass(frozen=True, slots=True)
class SectionsView(View):
    """How the URLs of a site are distributed, as of the last complete read of each sitemap.

    A sitemap that was never read completely counts as of its last read.
    """

    url_count: Annotated[
        Count,
        Example(1210),
        Field(
            description="Number of URLs that were counted. A URL in several sitemaps is counted in "
            "each of them; one that is missing from its sitemap is not counted."
        ),
    ]
    sitemap_count: Annotated[
        Count, Example(3), Field(description="Number of sitemaps that were counted.")
    ]
    complete: Annotated[
        bool,
        Example(True),
        Field(description="False if the site has more sitemaps than are counted."),
    ]
    sections: Annotated[
        list[SectionView],
        declared(maxItems=MAX_SECTIONS),
        Example([{"section": "/blog/", "url_count": 1200}]),
        Field(description="The largest sections, the largest first."),
    ]
    other_url_count: Annotated[
        Count, Example(10), Field(description="Number of URLs in all other sections.")
    ]
    months: Annotated[
        list[MonthView],
        declared(maxItems=MAX_MONTHS),
        Example([{"month": "2025-11", "url_count": 310}]),
        Field(description="Number of URLs by the month of their `lastmod` in UTC, oldest first."),
    ]
    other_month_url_count: Annotated[
        Count,
        Example(0),
        Field(description="Number of URLs with a `lastmod` in a month that is not shown."),
    ]
    undated_url_count: Annotated[
        Count, Example(900), Field(description="Number of URLs without `lastmod`.")
    ]


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
        months=sorted(
            (MonthView(row.name, int(row.urls)) for row in months), key=attrgetter("month")
        ),
        other_month_url_count=dated - sum(int(row.urls) for row in months),
        undated_url_count=int(totals.undated),
    )


def _documents(rows: int) -> CTE:
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
    documents = _documents(MAX_DOCUMENTS + 1)
    names = ("other", "other_months", "undated")
    counts = (cast(documents.c.counts[name].astext, BigInteger) for name in names)
    sums = (func.coalesce(func.sum(count), 0) for count in counts)
    labelled: list[Any] = [total.label(name) for total, name in zip(sums, names, strict=True)]
    return select(func.count().label("documents"), *labelled)


@cache
def _summed(part: str) -> Select[Any]:
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
