"""The invariants of the change feed: each published change once, and none lost."""

from __future__ import annotations

# The last published change of each entry that no unpublished scan has touched since.
LAST_CHANGES = """
    SELECT DISTINCT ON (c.sitemap_id, c.url_hash) c.sitemap_id, c.url_hash, c.url, c.kind, p.seq
    FROM url_changes c
    JOIN (SELECT id, published_seq AS seq FROM scans WHERE published_seq IS NOT NULL) p
    ON p.id = c.scan_id
    WHERE NOT EXISTS (
        SELECT FROM url_changes o JOIN scans s ON s.id = o.scan_id
        WHERE o.sitemap_id = c.sitemap_id AND o.url_hash = c.url_hash AND s.published_seq IS NULL)
    ORDER BY c.sitemap_id, c.url_hash, p.seq DESC
"""
# Each query returns the rows that break the invariant.
FEED_INVARIANTS = {
    "a published scan has no number": """
        SELECT id FROM scans WHERE state = 'published' AND published_seq IS NULL""",
    "a number is beyond the head of the feed": """
        SELECT s.id FROM scans s, feed_head h WHERE s.published_seq > h.seq
        UNION ALL SELECT e.id FROM feed_events e, feed_head h WHERE e.seq > h.seq""",
    "a number of the feed has neither a scan nor an event": """
        SELECT n FROM feed_head h, generate_series(h.retained_from + 1, h.seq) n
        WHERE NOT EXISTS (SELECT FROM scans WHERE published_seq = n)
        AND NOT EXISTS (SELECT FROM feed_events WHERE seq = n)""",
    "a URL is not as its last change says": f"""
        SELECT c.url, c.kind FROM ({LAST_CHANGES}) c
        LEFT JOIN sitemap_urls u ON u.sitemap_id = c.sitemap_id AND u.url_hash = c.url_hash
        WHERE (c.kind IN ('removed', 'expired', 'duplicate_removed'))
        <> (u.url IS NULL OR u.removed_at IS NOT NULL)
        AND NOT EXISTS (
            SELECT FROM url_changes m JOIN scans s ON s.id = m.scan_id
            WHERE m.previous_sitemap_id = c.sitemap_id AND m.url_hash = c.url_hash
            AND s.published_seq >= c.seq)""",
    "a URL was added after the baseline without a change": """
        SELECT u.url FROM sitemap_urls u JOIN sitemaps m ON m.id = u.sitemap_id
        JOIN domains d ON d.id = m.domain_id JOIN scans b ON b.id = d.baseline_scan_id
        WHERE b.state = 'published' AND u.removed_at IS NULL AND u.first_seen_at > b.finished_at
        AND NOT EXISTS (SELECT FROM url_changes c
            WHERE c.sitemap_id = u.sitemap_id AND c.url_hash = u.url_hash)""",
    "a document has two baselines": """
        SELECT sitemap_id FROM feed_events WHERE kind = 'baseline'
        GROUP BY sitemap_id HAVING count(*) > 1""",
    "changes of an unpublished scan were left behind by a later one": """
        SELECT c.url FROM url_changes c JOIN scans s ON s.id = c.scan_id
        WHERE s.published_seq IS NULL AND s.state <> 'running' AND EXISTS (
            SELECT FROM scans p WHERE p.domain_id = s.domain_id AND p.id > s.id
            AND p.state = 'published' AND p.started_at > s.finished_at)""",
}
# What a scan published, for the comparison with an undisturbed run.
FEED_SNAPSHOT_QUERIES = {
    "changes": """
        SELECT m.url, c.kind, count(*), sum(hashtextextended(replace(c.url, $2, '{base}')
        || coalesce(c.before::text, '') || coalesce(c.after::text, ''), 0))
        FROM url_changes c JOIN sitemaps m ON m.id = c.sitemap_id
        WHERE m.domain_id = $1 GROUP BY 1, 2 ORDER BY 1, 2""",
    "events": """
        SELECT kind, sitemap, data::text FROM feed_events WHERE domain_id = $1 ORDER BY 1, 2, id""",
}
