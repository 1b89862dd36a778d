"""Measures the pages of the dashboard with many sites: few of them large, most small.

The rows are created in a new database. First the application runs in this process, without a
network; then `siteatlas serve` shows the same pages to Chromium, see `bench.page_loads`.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import func, select, text

from bench.page_loads import load_table, measure_loads
from bench.publication import HOST, BenchSite, vacuum
from siteatlas.access.keys import Installation
from siteatlas.main import create_app
from siteatlas.settings import Settings
from siteatlas.storage.models import (
    LOCAL_USER_ID,
    Domain,
    Job,
    Scan,
    SitemapUrl,
    WebhookEndpoint,
)
from siteatlas.storage.session import Database, get_background_session
from siteatlas.storage.startup import open_storage
from siteatlas.web.pages.domain import TABS
from siteatlas.web.templating import address

SCANS_PER_DOMAIN = 20
# A list of so many URLs is just sorted.
SORTED_SITE, SORTED_URLS = "site-2.example", 20_000
RUNS = 7
GOAL_MS = 200.0
# Each domain has been scanned daily; one scan in ten changed something, one in fifty failed. Three
# sites have a tenth of the URLs each, the others a few hundred, and the first one the rest.
FILL = (
    """INSERT INTO domains (domain, base_url, origin, watched, last_scan_at, last_scan_status,
        last_error_code, url_count, distinct_url_count, sitemap_count, next_scan_at, created_by,
        tags)
    SELECT name, 'https://' || name, 'https://' || name, true, now(), status,
        CASE WHEN status = 'failed' THEN 'blocked' END, urls, urls, 1,
        now() + n * interval '1 minute', :user,
        CASE n % 3 WHEN 0 THEN ARRAY['client:' || n % 40, 'shop'] ELSE '{}' END
    FROM (SELECT n, 'site-' || n || '.example' AS name,
            CASE WHEN n % 50 = 0 THEN 'failed' WHEN n % 20 = 0 THEN 'partial' ELSE 'completed' END
                AS status,
            CASE WHEN n = 2 THEN :sorted WHEN n <= 5 THEN :urls / 10 ELSE n % 500 END AS urls
        FROM generate_series(2, :domains) AS n) AS made""",
    """INSERT INTO sitemaps (domain_id, url, url_hash, type, discovery_method, status, first_job_id,
        last_job_id, created_by, http_status, wire_bytes, decoded_bytes, url_count, last_read_at,
        last_complete_at, baseline_scan_id, url_breakdown)
    SELECT id, base_url || '/sitemap.xml', 1, 'standard', 'robots_txt', 'completed',
        gen_random_uuid(), gen_random_uuid(), :user, 200, 20 * url_count, 120 * url_count,
        url_count, now(), now(), 0, jsonb_build_object(
            'sections', jsonb_build_object('/blog/', url_count / 4, '/shop/', url_count * 3 / 4),
            'months', (SELECT jsonb_object_agg(to_char(now() - m * interval '31 days', 'YYYY-MM'),
                url_count / 30) FROM generate_series(0, 29) AS m))
    FROM domains WHERE domain <> :host""",
    """INSERT INTO sitemap_urls (sitemap_id, url_hash, url, lastmod, fingerprint)
    SELECT sitemaps.id, hashtextextended(name, 0), name,
        date_trunc('day', now()) - n % 900 * interval '1 day', 1
    FROM domains JOIN sitemaps ON domain_id = domains.id
        CROSS JOIN LATERAL generate_series(1, domains.url_count) AS n
        CROSS JOIN LATERAL (SELECT base_url || CASE WHEN n % 4 = 0 THEN '/blog' ELSE '/shop' END
            || '/a-descriptive-name-of-the-page-' || n AS name) AS named
    WHERE domain <> :host""",
    """UPDATE domains SET last_scan_at = now(), last_scan_status = 'completed', sitemap_count =
        (SELECT count(*) FROM sitemaps WHERE domain_id = domains.id),
        url_count = :rest, distinct_url_count = :rest WHERE domain = :host""",
    """INSERT INTO scans (job_id, job_uuid, domain_id, created_by, state, partial, reasons,
        error_code, sitemap_count, url_count, distinct_url_count, change_counts, started_at,
        finished_at, published_seq)
    SELECT 1000 + row_number() OVER (), gen_random_uuid(), id, :user,
        CASE WHEN n % 50 = 0 THEN 'failed' ELSE 'published' END, n % 19 = 0,
        CASE WHEN n % 19 = 0 THEN '["truncated"]' ELSE '[]' END::jsonb,
        CASE WHEN n % 50 = 0 THEN 'blocked' END, sitemap_count, url_count, url_count,
        CASE WHEN domain = :host AND n % 10 = 0 THEN jsonb_build_object('added', 1250 * n)
            WHEN n % 10 = 0 THEN jsonb_build_object('added', 5, 'removed', n / 10)
            ELSE '{}'::jsonb END,
        finished - interval '20 seconds', finished,
        CASE WHEN n % 50 = 0 THEN NULL ELSE row_number() OVER (ORDER BY n, domain) END
    FROM domains CROSS JOIN generate_series(1, :scans) AS n
        CROSS JOIN LATERAL (SELECT now() - (:scans - n) * interval '1 day'
            - abs(hashtext(domain) % 40000) * interval '1 second' AS finished) AS timed""",
    """INSERT INTO url_changes (scan_id, sitemap_id, url_hash, kind, url, before, after, not_after)
    SELECT scans.id, picked.id, n, kind, base_url || '/catalogue/articles/item-' || n,
        CASE kind WHEN 'removed' THEN '{}'::jsonb END, CASE kind WHEN 'added' THEN '{}'::jsonb END,
        finished_at
    FROM scans JOIN domains ON domains.id = domain_id CROSS JOIN LATERAL
        (SELECT id FROM sitemaps WHERE domain_id = domains.id LIMIT 1) AS picked
        CROSS JOIN LATERAL jsonb_each_text(change_counts) AS counted(kind, total)
        CROSS JOIN LATERAL generate_series(1 + length(kind) * 100000,
            total::int + length(kind) * 100000) AS n""",
    """UPDATE domains SET baseline_scan_id = first FROM
        (SELECT domain_id, min(id) AS first FROM scans GROUP BY domain_id) AS found
    WHERE domain_id = domains.id""",
    """INSERT INTO sitemap_scans (scan_id, sitemap_id, state, http_status, url_count, wire_bytes,
        decoded_bytes, seconds, finished_at)
    SELECT scans.id, sitemaps.id, 'complete', 200, sitemaps.url_count, 900000, 8000000, 0.4,
        finished_at
    FROM scans JOIN sitemaps USING (domain_id)""",
    """INSERT INTO jobs (job_type, domain_id, created_by, status, attempt, result_data, error_code,
        started_at, finished_at)
    SELECT 'sitemap', id, :user,
        CASE WHEN last_scan_status = 'failed' THEN 'failed' ELSE 'completed' END, 1,
        jsonb_build_object('url_count', url_count, 'sitemap_count', sitemap_count), last_error_code,
        now() - interval '20 seconds', now()
    FROM domains CROSS JOIN generate_series(1, 10) AS n WHERE domain <> :host""",
    """INSERT INTO candidates (domain_id, url_hash, url, method, verdict, http_status, scan_id)
    SELECT id, n, base_url || '/sitemap-' || n || '.xml', 'common_path',
        CASE n WHEN 1 THEN 'accepted' ELSE 'rejected' END, CASE n WHEN 1 THEN 200 ELSE 404 END, 1
    FROM domains CROSS JOIN generate_series(1, 20) AS n""",
    """INSERT INTO findings (sitemap_id, domain_id, code, count, first_scan_id, last_scan_id)
    SELECT sitemaps.id, domain_id, code, domains.url_count + 1, 1, 20
    FROM sitemaps JOIN domains ON domains.id = domain_id
        CROSS JOIN unnest(ARRAY['document-cut', 'lastmod-invalid', 'url-undecodable']) AS code
    WHERE domain = :host OR hashtext(domain) % 7 = 0""",
    """INSERT INTO robots_files (domain_id, origin, content_hash, content, http_status)
    SELECT id, base_url, n, E'User-agent: *\nDisallow: /private/' || n || E'\nSitemap: ' || base_url
        || '/sitemap.xml', 200 FROM domains CROSS JOIN generate_series(1, 2) AS n""",
    """INSERT INTO audit_events (user_name, address, action, target, status)
    SELECT 'local', '127.0.0.1', 'POST /domains/{domain}/scan', 'site-' || n || '.example', 303
    FROM generate_series(1, 5000) AS n""",
    "UPDATE feed_head SET seq = (SELECT max(published_seq) FROM scans)",
    """WITH made AS (INSERT INTO webhook_endpoints (url, types, created_by, secret, position,
            position_rank)
        SELECT 'https://hooks.example/siteatlas', '["scan.published"]', :user, 's', seq - 9, 0
        FROM feed_head RETURNING id)
    INSERT INTO webhook_deliveries (endpoint_id, message_id, type, seq, domain, attempt, delivered,
        http_status, seconds)
    SELECT id, 'm' || n, 'scan.published', n, 'site-' || n || '.example', 1, true, 200, 0.1
    FROM made CROSS JOIN generate_series(2, 500) AS n""",
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


def measure_pages(urls: int, sites: int) -> dict[str, Any]:
    """Measure all pages; returns what to print and the figures."""
    with tempfile.TemporaryDirectory(prefix="siteatlas-pages-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        paths, figures = asyncio.run(_measure(folder, urls, sites))
        loads = measure_loads(folder, paths)
    head = f"{'page':<44} {'ms':>8} {'longest':>8} {'CPU ms':>8} {'kB':>8}"
    lines = [
        f"pages: {sites:,} sites with {urls:,} URLs, median of {RUNS}",
        head,
        *(figure.line for figure in figures),
        load_table(loads),
    ]
    data = {"pages": [asdict(one) for one in figures], "loads": [asdict(one) for one in loads]}
    return {"text": "\n".join(lines), **data}


async def _measure(folder: Path, urls: int, sites: int) -> tuple[list[str], list[PageFigure]]:
    async with open_storage(Settings(data_dir=folder)) as database:
        await fill(database, urls, sites)
        async with _client(database) as client:
            paths = await page_paths()
            return paths, [await _time(client, path) for path in paths]


async def fill(database: Database, urls: int, sites: int) -> None:
    """Make the sites with their URLs, scans and jobs."""
    small = sum(number % 500 for number in range(6, sites + 1))
    rest = max(urls - small - SORTED_URLS - 3 * (urls // 10), 2)
    await BenchSite(rest).make()
    values = {"user": LOCAL_USER_ID, "domains": sites, "scans": SCANS_PER_DOMAIN, "host": HOST}
    values |= {"urls": urls, "rest": rest, "sorted": SORTED_URLS}
    async with get_background_session(statement_seconds=600) as session, session.begin():
        for statement in FILL:
            names = set(re.findall(r"(?<!:):([a-z]+)", statement))
            await session.execute(text(statement), {name: values[name] for name in names})
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


async def page_paths() -> list[str]:
    """The pages to measure: lists, every tab of a large site, and one of each kind of details."""
    async with get_background_session() as session:
        job = await session.scalar(select(func.max(Job.id)))
        seq = await session.scalar(select(func.max(Scan.published_seq)))
        webhook = await session.scalar(select(WebhookEndpoint.id))
        of_host = select(Scan.published_seq).join(Domain, Domain.id == Scan.domain_id)
        large = await session.scalars(
            of_host.where(Domain.domain == HOST, Scan.change_counts["added"].is_not(None))
        )
        sorted_changes, many_changes = sorted(filter(None, large))
        listing = select(SitemapUrl.sitemap_id, SitemapUrl.url).limit(1)
        document, url = (await session.execute(listing)).one()
    sites = ("", "?sort=-findings", "?sort=-changes", "?state=attention", "?q=site-77", "?tag=shop")
    site = f"/domains/{HOST}"
    return [
        *("/", "/?days=90", *(f"/domains{query}" for query in sites), "/urls?contains=page-4999"),
        *("/changes", "/changes?kinds=added", f"/changes/{seq}"),
        *(f"/changes/{number}" for number in (sorted_changes, many_changes)),
        *("/findings", "/jobs", "/jobs?status=failed", f"/jobs/{job}", "/scan"),
        *("/webhooks", f"/webhooks/{webhook}", "/system", "/keys", "/sessions", "/audit"),
        *(f"{site}?tab={tab}" for tab in TABS),
        *(f"{site}?tab=urls&contains=item-4999", f"{site}?tab=findings&code=document-cut"),
        *(f"/domains/{SORTED_SITE}?tab=urls&sort={sort}" for sort in ("url", "-lastmod")),
        *(f"/sitemaps/{document}", address(f"/domains/{HOST}/url", url=url)),
    ]


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
