"""Measures how long the publication of a large site takes, with some of its URLs changed.

The rows are made in the database as reading leaves them. Some of the changes are new URLs, some
are missing ones, and some of these have moved. The site has no server: nothing is requested.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Integer, cast, event, func, insert, literal, select, text, update
from sqlalchemy.dialects.postgresql import JSONB

from siteatlas.catalog.scans import open_scan
from siteatlas.catalog.write_batch import WriteBatch
from siteatlas.net.address import parse_site
from siteatlas.processor.documents import OpenedScan
from siteatlas.processor.publication import publish
from siteatlas.processor.settlement import RemovalRules, ScanEnd
from siteatlas.processor.steps import FencedSteps, FinishedScan, JobActivity
from siteatlas.queue.claims import claim
from siteatlas.queue.submission import submit_site
from siteatlas.settings import Settings
from siteatlas.storage.models import (
    LOCAL_USER_ID,
    Domain,
    Scan,
    Sitemap,
    SitemapScan,
    SitemapUrl,
    UrlChange,
)
from siteatlas.storage.session import AsyncSession, Database, get_background_session
from siteatlas.storage.startup import open_storage

HOST = "bench.example"
MAX_URLS_PER_DOCUMENT = 50_000
LEASE_SECONDS = 3600.0
RULES = RemovalRules(timedelta(hours=1), timedelta(days=7))


@dataclass
class PublicationFigure:
    """Seconds of a whole publication, and for how long it held the head of the feed."""

    urls: int
    changes: int
    seconds: float
    head_seconds: float
    changes_by_kind: dict[str, int]

    def line(self) -> str:
        """The figure in a sentence."""
        return (
            f"{self.urls:,} URLs, {self.changes:,} changes: published in {self.seconds:.2f} s, "
            f"feed_head held for {1000 * self.head_seconds:.1f} ms; {self.changes_by_kind}"
        )


class BenchSite:
    """A stored site whose documents list URLs with known hashes: number * 7919."""

    def __init__(self, urls: int) -> None:
        self.urls = urls
        self.documents: list[UUID] = []
        self.domain_id = uuid4()

    async def make(self) -> None:
        """Store the site as its first complete scan left it."""
        await self._register()
        # URLs move from the first document to the last, so there are at least two.
        per_document = min(MAX_URLS_PER_DOCUMENT, self.urls // 2)
        for first in range(0, self.urls, per_document):
            count = min(per_document, self.urls - first)
            async with get_background_session(statement_seconds=300) as session, session.begin():
                await self._add_document(session, len(self.documents), first, count)

    async def _register(self) -> None:
        async with get_background_session() as session, session.begin():
            await submit_site(session, parse_site(HOST), created_by=LOCAL_USER_ID)
            found = await session.scalars(select(Domain.id).where(Domain.domain == HOST))
            self.domain_id = found.one()

    async def _add_document(
        self, session: AsyncSession, number: int, first: int, count: int
    ) -> None:
        document = uuid4()
        self.documents.append(document)
        job = uuid4()
        row = {"id": document, "domain_id": self.domain_id, "url": f"https://{HOST}/{number}.xml"}
        row |= {"url_hash": number, "type": "standard", "discovery_method": "robots_txt"}
        row |= {"status": "completed", "first_job_id": job, "last_job_id": job, "url_count": count}
        row |= {"created_by": LOCAL_USER_ID, "baseline_scan_id": 0, "last_complete_at": func.now()}
        await session.execute(insert(Sitemap).values(row))
        await self.add_urls(session, document, range(first, first + count))

    async def add_urls(self, session: AsyncSession, document: UUID, numbers: range) -> None:
        """List URLs in a document."""
        given = (
            func.generate_series(numbers.start, numbers.stop - 1).table_valued("n").render_derived()
        )
        number = cast(given.c.n, Integer)
        rows = select(
            literal(document), _hash(number), _url(number), literal(1), func.now()
        ).select_from(given)
        names = ["sitemap_id", "url_hash", "url", "fingerprint", "first_seen_at"]
        await session.execute(insert(SitemapUrl).from_select(names, rows))


def _hash(number: Any) -> Any:
    """The hash of a URL; spread like real ones."""
    return func.hashtextextended(_url(number), 0)


def _url(number: Any) -> Any:
    return func.concat(f"https://{HOST}/catalogue/articles/item-", number)


async def change(site: BenchSite, scan_id: int, changes: int) -> None:
    """Half of the changes are new URLs, half are missing ones; a fifth of these have moved."""
    new, missing, moved = changes // 2, changes - changes // 2, changes // 10
    first, last = site.documents[0], site.documents[-1]
    async with get_background_session(statement_seconds=300) as session, session.begin():
        picked = select(SitemapUrl.url_hash).where(SitemapUrl.sitemap_id == first).limit(missing)
        gone = update(SitemapUrl).where(
            SitemapUrl.sitemap_id == first, SitemapUrl.url_hash.in_(picked)
        )
        await session.execute(gone.values(missing_scan_id=scan_id))
        await site.add_urls(session, last, range(site.urls, site.urls + new - moved))
        await _list_missing_elsewhere(session, first, last, moved)
        await _record_added(session, last, scan_id, new)
        await _count(session, first, missing_count=missing)
        await _count(session, last, url_count=Sitemap.url_count + new)


async def _list_missing_elsewhere(
    session: AsyncSession, source: UUID, target: UUID, count: int
) -> None:
    rows = (
        select(literal(target), SitemapUrl.url_hash, SitemapUrl.url, literal(1), func.now())
        .where(SitemapUrl.sitemap_id == source, SitemapUrl.missing_scan_id.is_not(None))
        .limit(count)
    )
    names = ["sitemap_id", "url_hash", "url", "fingerprint", "first_seen_at"]
    await session.execute(insert(SitemapUrl).from_select(names, rows))


async def _record_added(session: AsyncSession, document: UUID, scan_id: int, count: int) -> None:
    empty = cast(literal("{}"), JSONB())
    rows = (
        select(
            literal(scan_id),
            SitemapUrl.sitemap_id,
            SitemapUrl.url_hash,
            literal("added"),
            SitemapUrl.url,
            empty,
        )
        .where(SitemapUrl.sitemap_id == document, SitemapUrl.first_seen_at == func.now())
        .limit(count)
    )
    names = ["scan_id", "sitemap_id", "url_hash", "kind", "url", "after"]
    await session.execute(insert(UrlChange).from_select(names, rows))


async def _count(session: AsyncSession, document: UUID, **values: Any) -> None:
    await session.execute(update(Sitemap).where(Sitemap.id == document).values(**values))


@contextmanager
def head_timer(database: Database) -> Iterator[list[float]]:
    """Collects for how long each transaction held the head of the feed."""
    engine, held, since = database.engine.sync_engine, [], [0.0]

    def before(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "UPDATE feed_head" in statement:
            since[0] = time.perf_counter()

    def returned(_pooled: Any, _record: Any) -> None:
        if since[0]:
            held.append(time.perf_counter() - since[0])
            since[0] = 0.0

    event.listen(engine, "before_cursor_execute", before)
    event.listen(engine, "checkin", returned)
    try:
        yield held
    finally:
        event.remove(engine, "before_cursor_execute", before)
        event.remove(engine, "checkin", returned)


async def vacuum(database: Database) -> None:
    """Vacuum now, because autovacuum would start during the measurement after so many new rows."""
    plain = database.engine.execution_options(isolation_level="AUTOCOMMIT")
    async with plain.connect() as connection:
        await connection.execute(text("SET statement_timeout = 0"))
        await connection.execute(text("VACUUM ANALYZE"))


async def measure_publication(folder: Path, urls: int, changes: int) -> PublicationFigure:
    """Create a site in a new database, change it, and publish the changes."""
    async with open_storage(Settings(data_dir=folder)) as database:
        site = BenchSite(urls)
        await site.make()
        taken, scan_id = await _read_scan(site)
        await change(site, scan_id, changes)
        await vacuum(database)
        steps = FencedSteps(taken, JobActivity(), lease_seconds=LEASE_SECONDS)
        opened = OpenedScan(scan_id, site.domain_id, HOST, False, {})
        end = ScanEnd(opened, RULES, _nobody, is_full=True, sees_all_names=True)
        with head_timer(database) as held:
            start = time.perf_counter()
            _, result = await publish(steps, FinishedScan(WriteBatch(), [], False), end)
            seconds = time.perf_counter() - start
    return PublicationFigure(urls, changes, seconds, held[0], result["changes"])


async def _read_scan(site: BenchSite) -> tuple[Any, int]:
    """A scan that has read all documents after a first published one."""
    async with get_background_session() as session, session.begin():
        (taken,) = await claim(session, "bench", 1, LEASE_SECONDS)
        scan_id, _ = await open_scan(
            session, job_id=taken.id, domain_id=site.domain_id, max_pages=None
        )
        ids = {"job_id": 0, "job_uuid": uuid4(), "domain_id": site.domain_id}
        first = {**ids, "created_by": LOCAL_USER_ID, "state": "published", "published_seq": 1}
        first |= {"distinct_url_count": site.urls, "finished_at": func.now()}
        await session.execute(insert(Scan).values(first))
        await session.execute(text("UPDATE feed_head SET seq = 1"))
        await session.execute(update(Domain).values(baseline_scan_id=1, url_count=site.urls))
        read = [
            {"scan_id": scan_id, "sitemap_id": document, "state": "complete", "http_status": 200}
            for document in site.documents
        ]
        await session.execute(insert(SitemapScan), read)
        await session.execute(update(SitemapScan).values(finished_at=func.now()))
        await session.execute(update(Sitemap).values(last_complete_at=func.now()))
    return taken, scan_id


async def _nobody(urls: Iterable[str]) -> Any:
    """No document of this site has vanished, so that none is requested."""
    for url in urls:
        raise AssertionError(url)
        yield url


def main() -> None:
    """Print the figure of one publication."""
    parser = argparse.ArgumentParser(prog="python -m bench.publication", description=__doc__)
    parser.add_argument("--urls", type=int, default=1_000_000, help="size of the site (1,000,000)")
    parser.add_argument("--changes", type=int, default=50_000, help="of its URLs (50,000)")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="siteatlas-publication-") as folder:
        figure = asyncio.run(measure_publication(Path(folder), chosen.urls, chosen.changes))
    print(figure.line())


if __name__ == "__main__":
    main()
