"""Problems of all sites together: the most widespread first, counted once a minute."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.problems import ProblemTotals
from siteatlas.storage.models import DomainProblem
from tests.fixtures.records import add_domain, add_sitemap


async def add_problems(session: AsyncSession, name: str, **counts: int) -> None:
    """A site whose sitemap has so many problems of each code."""
    domain = await add_domain(session, name)
    sitemap = await add_sitemap(session, domain)
    rows = [
        {
            "domain_id": domain.id,
            "sitemap_id": sitemap.id,
            "code": code,
            "count": count,
            "samples": [],
            "first_scan_id": 1,
            "last_scan_id": 1,
        }
        for code, count in counts.items()
    ]
    await session.execute(insert(DomainProblem), rows)


async def test_the_totals_are_counted_once_a_minute(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch
):
    totals = ProblemTotals()
    await add_problems(session, "one.example", lastmod_invalid=3)
    first = await totals.read(session)
    await add_problems(session, "two.example", lastmod_invalid=4, url_too_long=1)
    assert await totals.read(session) == first
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    found = [(one.code, one.count, one.domains, one.largest) for one in await totals.read(session)]
    assert found == [
        ("lastmod_invalid", 7, 2, ["two.example", "one.example"]),
        ("url_too_long", 1, 1, ["two.example"]),
    ]
