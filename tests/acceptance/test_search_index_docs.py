"""The program of the page on search indexes runs as it is written, against a running service."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import delete, func, select, update

from siteatlas.storage.models import Domain, FeedHead, Sitemap, SitemapUrl
from siteatlas.storage.session import AsyncSession, Database
from tests.fixtures.changes import add_changes, add_event, add_published_scan
from tests.fixtures.commands import Machine, Service
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain, add_sitemap, add_urls

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sync-a-search-index.md"
(PROGRAM,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def sync(service: Service, folder: Path) -> str:
    """Run the program to its end; what it prints."""
    program = PROGRAM.replace("http://localhost:8000", service.address)
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def indexed(folder: Path) -> set[str]:
    """The URLs in the index."""
    with sqlite3.connect(folder / "index.db") as index:
        return {row[0] for row in index.execute("SELECT url FROM pages")}


async def listed() -> set[str]:
    """The URLs that are stored as listed."""
    async with transaction() as session:
        found = await session.scalars(select(SitemapUrl.url).where(SitemapUrl.removed_at.is_(None)))
        return set(found.all())


async def publish_changes(domain: Domain, old: Sitemap, new: Sitemap) -> None:
    """A URL comes, one leaves, one moves, one is listed twice; rows and events fit together."""
    async with transaction() as session:
        scan = await add_published_scan(session, domain)
        await add_urls(session, new.id, [(n, f"https://example.com/{n}") for n in (1, 3, 5000)])
        await add_changes(session, scan, new, [5000])
        await add_changes(session, scan, new, [1], "moved", previous_sitemap_id=old.id)
        await add_changes(session, scan, new, [3], "duplicate_added")
        await add_changes(session, scan, old, [2], "removed", after=None)
        for number in (1, 2):
            await remove_row(session, old.id, number)


async def remove_row(session: AsyncSession, sitemap_id: UUID, number: int) -> None:
    row = (SitemapUrl.sitemap_id == sitemap_id, SitemapUrl.url_hash == number)
    await session.execute(update(SitemapUrl).where(*row).values(removed_at=func.now()))


@pytest.mark.full
@pytest.mark.slow
async def test_the_index_equals_what_is_stored_after_each_run(
    database: Database, database_url: str, tmp_path: Path
):
    async with transaction() as session:
        domain = await add_domain(session)
        old = await add_sitemap(session, domain, "old.xml")
        new = await add_sitemap(session, domain, "new.xml")
        await add_urls(session, old.id, [(n, f"https://example.com/{n}") for n in range(1500)])
        await add_published_scan(session, domain)
    machine = Machine(tmp_path, {"DATABASE_URL": database_url})
    with machine.service("--no-scheduler") as service:
        assert sync(service, tmp_path) == "1500 pages"
        await publish_changes(domain, old, new)
        assert sync(service, tmp_path) == "1500 pages"
        assert indexed(tmp_path) == await listed()
        assert "https://example.com/5000" in indexed(tmp_path)
        await read_silently(domain, old)
        assert sync(service, tmp_path) == "1499 pages"
        assert indexed(tmp_path) == await listed()
        await lose_events(domain, old)
        assert sync(service, tmp_path) == "1498 pages"
        assert indexed(tmp_path) == await listed()


async def read_silently(domain: Domain, sitemap: Sitemap) -> None:
    """A row leaves without an event, and a baseline says that the sitemap starts anew."""
    async with transaction() as session:
        await session.execute(delete(SitemapUrl).where(SitemapUrl.url_hash == 10))
        scan = await add_published_scan(session, domain)
        await add_event(session, domain, "baseline", scan, sitemap_id=sitemap.id)


async def lose_events(domain: Domain, sitemap: Sitemap) -> None:
    """A removal is no longer retained when the program runs again."""
    async with transaction() as session:
        scan = await add_published_scan(session, domain)
        await add_changes(session, scan, sitemap, [20], "removed", after=None)
        await remove_row(session, sitemap.id, 20)
        await session.execute(update(FeedHead).values(retained_from=FeedHead.seq))
