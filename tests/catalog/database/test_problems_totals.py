"""Problems of all sites together: the most widespread first, counted once a minute."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.problems import FoundProblem, ProblemTotals, record_problems, total_problems
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


async def test_the_kinds_of_a_site_have_documents_an_example_and_a_group(session: AsyncSession):
    await add_problems(session, "other.example", bad_url=9)
    domain = await add_domain(session, "one.example")
    found = []
    for path, url in (("b.xml", "https://one.example/b"), ("a.xml", "https://one.example/a")):
        sitemap = await add_sitemap(session, domain, path)
        found.append(FoundProblem(sitemap.id, "bad_url", 2, [{"url": url}, {"url": "/0"}]))
    last = found[-1].sitemap_id
    found.append(FoundProblem(last, "lastmod_invalid", 5, [{"value": "soon"}]))
    found.append(FoundProblem(last, "from_the_future", 1, []))
    await record_problems(session, 1, found, [])
    kinds = await total_problems(session, domain.id)
    assert [(one.code, one.count, one.documents, one.example, one.group) for one in kinds] == [
        ("lastmod_invalid", 5, 1, "soon", "kept"),
        ("bad_url", 4, 2, "https://one.example/a", "left_out"),
        ("from_the_future", 1, 1, None, "document"),
    ]
    assert kinds[2].meaning == "from_the_future"
