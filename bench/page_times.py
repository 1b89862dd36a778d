"""Measures how long the server takes for each page of the dashboard: many sites, one of them large.

The rows are created in a new database; the application runs in this process, without a network.
Also prints the size of the scripts and styles that a page loads.
"""

from __future__ import annotations

import asyncio
import gzip
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import select, text

from bench.publication import HOST, BenchSite, vacuum
from siteatlas.access.keys import Installation
from siteatlas.main import create_app
from siteatlas.settings import Settings
from siteatlas.storage.models import LOCAL_USER_ID, Job, Sitemap
from siteatlas.storage.session import Database, get_background_session
from siteatlas.storage.startup import open_storage
from siteatlas.web.pages.domain import TABS
from siteatlas.web.templating import STATIC

DOMAINS = 10_000
SCANS_PER_DOMAIN = 20
RUNS = 7
GOAL_MS = 200.0
ASSETS = ("app.css", "app.js", "vendor/htmx/htmx.min.js", "vendor/htmx/hx-sse.min.js")
# Each domain has been scanned daily; one scan in ten changed something, one in fifty failed.
FILL = (
    """INSERT INTO domains (domain, base_url, origin, watched, last_scan_at, last_scan_status,
        url_count, distinct_url_count, sitemap_count, next_scan_at, created_by)
    SELECT 'site-' || n || '.example', 'https://site-' || n || '.example',
        'https://site-' || n || '.example', true, now(),
        CASE WHEN n % 50 = 0 THEN 'failed' WHEN n % 20 = 0 THEN 'partial' ELSE 'complete' END,
        n % 1000, n % 1000, 3, now() + n * interval '1 second', :user
    FROM generate_series(2, :domains) AS n""",
    """INSERT INTO scans (job_id, job_uuid, domain_id, created_by, state, partial, sitemap_count,
        url_count, distinct_url_count, change_counts, started_at, finished_at, published_seq)
    SELECT 1000 + row_number() OVER (), gen_random_uuid(), id, :user,
        CASE WHEN n % 50 = 0 THEN 'failed' ELSE 'published' END, n % 20 = 0, 3,
        url_count, url_count,
        CASE WHEN n % 10 = 0 THEN jsonb_build_object('added', n % 7, 'removed', n % 5)
            ELSE '{}'::jsonb END,
        now() - (:scans - n) * interval '1 day', now() - (:scans - n) * interval '1 day',
        CASE WHEN n % 50 = 0 THEN NULL ELSE row_number() OVER (ORDER BY n, domain) END
    FROM domains CROSS JOIN generate_series(1, :scans) AS n""",
    """INSERT INTO jobs (job_type, domain_id, created_by, status, attempt, result_data,
        started_at, finished_at)
    SELECT 'sitemap', id, :user,
        CASE WHEN last_scan_status = 'failed' THEN 'failed' ELSE 'completed' END, 1,
        jsonb_build_object('url_count', url_count, 'sitemap_count', 3), now(), now()
    FROM domains CROSS JOIN generate_series(1, 10) AS n WHERE domain <> :host""",
    "UPDATE feed_head SET seq = (SELECT max(published_seq) FROM scans)",
    """UPDATE domains SET url_count = :urls, distinct_url_count = :urls, sitemap_count =
        (SELECT count(*) FROM sitemaps), last_scan_at = now(), last_scan_status = 'complete'
    WHERE domain = :host""",
)


@dataclass(frozen=True, slots=True)
class PageFigure:
    """The median and the longest time of one page, and its size."""

    path: str
    median_ms: float
    longest_ms: float
    cpu_ms: float
    bytes: int

    @property
    def line(self) -> str:
        """One row of the table."""
        missed = "" if self.median_ms < GOAL_MS else "  above the goal"
        return (
            f"{self.path:<44} {self.median_ms:8.1f} {self.longest_ms:8.1f} {self.cpu_ms:8.1f} "
            f"{self.bytes / 1000:8.1f}{missed}"
        )


def measure_pages(urls: int) -> dict[str, Any]:
    """Measure all pages; returns what to print and the figures."""
    with tempfile.TemporaryDirectory(prefix="siteatlas-pages-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        figures = asyncio.run(_measure(folder, urls))
    head = f"{'page':<44} {'ms':>8} {'longest':>8} {'CPU ms':>8} {'kB':>8}"
    lines = [
        f"pages: {DOMAINS:,} domains, {urls:,} URLs in one of them, median of {RUNS}",
        head,
        *(figure.line for figure in figures),
        asset_line(),
    ]
    return {"text": "\n".join(lines), "pages": [asdict(figure) for figure in figures]}


async def _measure(folder: Path, urls: int) -> list[PageFigure]:
    async with open_storage(Settings(data_dir=folder)) as database:
        site = BenchSite(urls)
        await site.make()
        await _fill(database, urls)
        async with _client(database) as client:
            return [await _time(client, path) for path in await _paths()]


async def _fill(database: Database, urls: int) -> None:
    """Make the other sites, their scans and jobs."""
    values = {"user": LOCAL_USER_ID, "domains": DOMAINS, "scans": SCANS_PER_DOMAIN}
    values |= {"host": HOST, "urls": urls}
    async with get_background_session(statement_seconds=600) as session, session.begin():
        for statement in FILL:
            await session.execute(text(statement), values)
    await vacuum(database)


@asynccontextmanager
async def _client(database: Database) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application in this process."""
    installation = Installation(is_closed=False)
    app = create_app(Settings(), run_scheduler=False, database=database, installation=installation)
    headers = {"Accept": "text/html"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app),
        base_url="http://localhost:8000",
        headers=headers,
        timeout=60,
    ) as client:
        yield client


async def _paths() -> list[str]:
    """The pages to measure."""
    async with get_background_session() as session:
        job = (await session.execute(select(Job.id).order_by(Job.id.desc()).limit(1))).scalar_one()
        one = (await session.execute(select(Sitemap.id).limit(1))).scalar_one()
    lists = [
        "/",
        "/?days=90",
        "/domains",
        "/domains?sort=-problems",
        "/domains?state=attention",
        "/domains?q=site-77",
    ]
    lists += ["/changes", "/changes?kinds=added", "/problems", "/jobs", "/jobs?status=failed"]
    tabs = [f"/domains/{HOST}?tab={tab}" for tab in TABS]
    filtered = f"/domains/{HOST}?tab=urls&contains=item-4999"
    return [*lists, "/system", "/keys", *tabs, filtered, f"/sitemaps/{one}", f"/jobs/{job}"]


async def _time(client: httpx.AsyncClient, path: str) -> PageFigure:
    """Open one page several times; the first time fills caches and does not count."""
    spent, used, size = [], [], 0
    for _ in range(RUNS + 1):
        begun, cpu = time.perf_counter(), time.process_time()
        response = await client.get(path)
        spent.append(1000 * (time.perf_counter() - begun))
        used.append(1000 * (time.process_time() - cpu))
        assert response.status_code == httpx.codes.OK, (path, response.text[:300])
        size = len(response.content)
    return PageFigure(
        path, statistics.median(spent[1:]), max(spent[1:]), statistics.median(used[1:]), size
    )


def asset_line() -> str:
    """The compressed size of what every page loads."""
    return f"scripts and styles, compressed: {sum(map(_compressed, ASSETS)) / 1000:.1f} kB"


def _compressed(name: str) -> int:
    return len(gzip.compress((STATIC / name).read_bytes(), 9))
