"""The test oracle of the fault tests: nothing stored is missing, duplicated or inconsistent.

`violations` queries the database for rows that break an invariant. `take_snapshot` reads all that
the scans of a site stored, to be compared with the snapshot of an undisturbed run of that site.
"""

from __future__ import annotations

import json
import os
from typing import Any

from tests.faults.database_inspector import NAME, DatabaseInspector
from tests.faults.feed_oracle import FEED_INVARIANTS, FEED_SNAPSHOT_QUERIES
from tests.fixtures.waiting import wait_until

# Each query returns the rows that break the invariant.
INVARIANTS = {
    "a URL of a document is stored twice": """
        SELECT sitemap_id, url FROM sitemap_urls GROUP BY 1, 2 HAVING count(*) > 1""",
    "a document is stored twice": """
        SELECT domain_id, url FROM sitemaps GROUP BY 1, 2 HAVING count(*) > 1""",
    "a URL has no document": """
        SELECT u.url FROM sitemap_urls u LEFT JOIN sitemaps s ON s.id = u.sitemap_id
        WHERE s.id IS NULL""",
    "a job is processing without a live lease": """
        SELECT id FROM jobs WHERE status = 'processing'
        AND (lease_until IS NULL OR lease_until < clock_timestamp())""",
    "a job that is not processing has a lease": """
        SELECT id FROM jobs WHERE status <> 'processing' AND lease_until IS NOT NULL""",
    "two active jobs for one site": """
        SELECT dedup_key FROM jobs WHERE status IN ('pending', 'processing')
        GROUP BY 1 HAVING count(*) > 1""",
    "a completed job did not end exactly once": """
        SELECT j.id FROM jobs j LEFT JOIN job_attempts a
        ON a.job_id = j.id AND a.outcome = 'completed'
        WHERE j.status = 'completed' GROUP BY j.id, j.fence
        HAVING count(a.fence) <> 1 OR max(a.fence) <> j.fence""",
    "a job that did not complete has a completed attempt": """
        SELECT j.id FROM jobs j JOIN job_attempts a ON a.job_id = j.id
        WHERE a.outcome = 'completed' AND j.status <> 'completed'""",
    "a claim has no recorded end": """
        SELECT j.id FROM jobs j LEFT JOIN job_attempts a ON a.job_id = j.id
        WHERE j.status <> 'processing' GROUP BY j.id HAVING count(a.fence) <> j.fence""",
    "a completed job has no result": """
        SELECT id FROM jobs WHERE status = 'completed'
        AND (progress <> 1 OR result_data->'url_count' IS NULL OR finished_at IS NULL)""",
    "a completed job has no published scan": """
        SELECT j.id FROM jobs j LEFT JOIN scans s ON s.job_id = j.id
        WHERE j.status = 'completed' AND (s.state IS DISTINCT FROM 'published')""",
    "a scan is published though its job did not complete": """
        SELECT s.id FROM scans s JOIN jobs j ON j.id = s.job_id
        WHERE s.state = 'published' AND j.status <> 'completed'""",
    "a scan runs though its job has ended": """
        SELECT s.id FROM scans s JOIN jobs j ON j.id = s.job_id
        WHERE s.state = 'running' AND j.status IN ('completed', 'failed', 'cancelled')""",
    "a document is pending in a published scan": """
        SELECT d.sitemap_id FROM sitemap_scans d JOIN scans s ON s.id = d.scan_id
        WHERE d.state = 'pending' AND s.state = 'published'""",
    "the counter of a document is not that of its rows": """
        SELECT s.url FROM sitemaps s LEFT JOIN
        (SELECT sitemap_id, count(*) AS n FROM sitemap_urls WHERE removed_at IS NULL GROUP BY 1) u
        ON u.sitemap_id = s.id WHERE s.status = 'completed' AND s.url_count <> coalesce(u.n, 0)""",
    "the counter of a scan is not that of its documents": """
        SELECT s.id FROM scans s LEFT JOIN sitemap_scans d
        ON d.scan_id = s.id AND d.state IN ('complete', 'unchanged', 'cut')
        WHERE s.state = 'published' GROUP BY s.id
        HAVING s.read_url_count <> coalesce(sum(d.url_count), 0)
        OR s.sitemap_count <> count(d.sitemap_id)""",
    "the last scan of a site counts other URLs than the site": """
        SELECT d.domain FROM domains d JOIN scans s
        ON s.domain_id = d.id AND s.published_seq = d.last_published_seq
        WHERE s.state = 'published' AND s.url_count <> d.url_count
        AND NOT EXISTS (SELECT FROM scans l WHERE l.domain_id = d.id AND l.id > s.id)""",
    "the counter of a site is not that of its documents": """
        SELECT d.domain FROM domains d JOIN LATERAL (
            SELECT coalesce(sum(url_count), 0) AS urls,
            count(*) FILTER (WHERE gone_at IS NULL AND (status = 'completed' OR url_count > 0))
            AS documents
            FROM sitemaps WHERE domain_id = d.id
        ) s ON true WHERE d.last_scan_status IN ('completed', 'partial')
        AND NOT EXISTS (SELECT FROM scans WHERE domain_id = d.id AND state = 'running')
        AND (d.url_count, d.sitemap_count) <> (s.urls, s.documents)""",
    "the distinct URLs of a site are not those of its documents": """
        SELECT d.domain FROM domains d
        WHERE d.last_scan_status IN ('completed', 'partial')
        AND NOT EXISTS (SELECT FROM scans WHERE domain_id = d.id AND state = 'running')
        AND d.distinct_url_count <> (
            SELECT count(DISTINCT u.url_hash) FROM sitemap_urls u
            JOIN sitemaps s ON s.id = u.sitemap_id
            WHERE s.domain_id = d.id AND u.removed_at IS NULL)""",
    **FEED_INVARIANTS,
}
DEATHS = "SELECT count(*) FROM job_attempts WHERE outcome = 'rescued'"
LEFT_CONNECTIONS = """
    SELECT pid, application_name, state, query FROM pg_stat_activity
    WHERE datname = current_database() AND application_name <> $1
    AND backend_type = 'client backend' AND NOT ($2 AND state = 'idle')
"""
# A pooler keeps idle connections for the next client.
POOLED = bool(os.environ.get("SITEATLAS_TEST_POOLED"))
SNAPSHOT_QUERIES = {
    "documents": """
        SELECT m.url, m.type, m.status, m.discovery_method, m.http_status, m.url_count,
        m.error_code, m.has_images FROM sitemaps m WHERE m.domain_id = $1 ORDER BY m.url""",
    "urls": """
        SELECT m.url, count(*), sum(hashtextextended(replace(u.url, $2, '{base}')
        || '|' || coalesce(u.lastmod::text, '') || '|' || u.fingerprint::text, 0)),
        count(u.removed_at) FROM sitemaps m JOIN sitemap_urls u ON u.sitemap_id = m.id
        WHERE m.domain_id = $1 GROUP BY m.url ORDER BY m.url""",
    "links": """
        SELECT p.url, c.url FROM sitemap_links l JOIN sitemaps p ON p.id = l.parent_id
        JOIN sitemaps c ON c.id = l.child_id WHERE p.domain_id = $1 ORDER BY 1, 2""",
    "frontier": """
        SELECT m.url, d.state, d.url_count, d.skipped_count, d.http_status FROM sitemap_scans d
        JOIN sitemaps m ON m.id = d.sitemap_id JOIN scans s ON s.id = d.scan_id
        WHERE s.domain_id = $1 ORDER BY s.id, m.url""",
    "candidates": """
        SELECT url, method, verdict, reason, type, http_status FROM candidates
        WHERE domain_id = $1 ORDER BY url""",
    "scans": """
        SELECT state, partial, reasons::text, error_code, sitemap_count, url_count,
        distinct_url_count FROM scans WHERE domain_id = $1 ORDER BY id""",
    "site": """
        SELECT origin, last_scan_status, last_error_code, failures_in_a_row, sitemap_count,
        url_count, distinct_url_count FROM domains WHERE id = $1""",
    "job": """
        SELECT status, progress, error_code, (result_data - 'scan_id' - 'sitemaps' - 'domain')::text
        FROM jobs WHERE domain_id = $1 ORDER BY id""",
    **FEED_SNAPSHOT_QUERIES,
}

Snapshot = dict[str, list[tuple[Any, ...]]]


async def violations(inspector: DatabaseInspector, *, deaths: int | None = None) -> list[str]:
    """The broken invariants, as sentences; `deaths` is how many workers the test killed."""
    found = []
    for sentence, query in INVARIANTS.items():
        rows = await inspector.rows(query)
        found += [f"{sentence}: {[tuple(row) for row in rows[:3]]}"] if rows else []
    rescued = await inspector.value(DEATHS)
    if deaths is not None and rescued > deaths:
        found.append(f"{rescued} rescues, but only {deaths} deaths")
    return found


async def left_connections(inspector: DatabaseInspector, *, seconds: float = 10) -> list[str]:
    """Connections that are still open after their processes have exited."""

    async def gone() -> bool:
        return not await inspector.rows(LEFT_CONNECTIONS, NAME, POOLED)

    try:
        await wait_until(gone, seconds=seconds)
    except TimeoutError:
        return [str(tuple(row)) for row in await inspector.rows(LEFT_CONNECTIONS, NAME, POOLED)]
    return []


async def take_snapshot(inspector: DatabaseInspector, base: str) -> Snapshot:
    """All that the scans of a site stored, with its address replaced."""
    domain_id = await inspector.value(
        "SELECT id FROM domains WHERE domain = $1", base.removeprefix("http://")
    )
    snapshot: Snapshot = {}
    for part, query in SNAPSHOT_QUERIES.items():
        values = (domain_id, base) if "$2" in query else (domain_id,)
        snapshot[part] = [_without(base, row) for row in await inspector.rows(query, *values)]
    return snapshot


def _without(base: str, row: Any) -> tuple[Any, ...]:
    return tuple(
        value.replace(base, "{base}") if isinstance(value, str) else value for value in tuple(row)
    )


def differences(expected: Snapshot, found: Snapshot) -> list[str]:
    """Where two snapshots differ, as sentences."""
    return [
        f"{part}: expected {_short(expected[part])}, found {_short(found[part])}"
        for part in expected
        if expected[part] != found[part]
    ]


def _short(rows: list[tuple[Any, ...]]) -> str:
    text = json.dumps(rows, default=str)
    return text if len(text) < 1500 else f"{text[:1500]} …"


ERROR_MARKS = (
    "Traceback",
    "loop_iteration_failed",
    "job_crashed",
    "document_crashed",
    "request_failed",
)


def error_lines(output: str) -> list[str]:
    """Lines of a log that report a bug."""
    return [line for line in output.splitlines() if any(mark in line for mark in ERROR_MARKS)]
