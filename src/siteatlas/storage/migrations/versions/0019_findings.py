"""Findings: what rules say of documents and sites, with what the feed has said of it.

What was stored as problems and as errors of documents becomes findings that count as announced, so
that an upgrade tells nobody of what was wrong before.
"""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

EVENT_KINDS = (
    "'baseline', 'sitemap_added', 'sitemap_gone', 'lastmod_distrusted', 'removals_held', "
    "'robots_changed', 'origin_changed', 'scan_failed', 'domain_forgotten'"
)
MESSAGES = "'scan.published', 'scan.failed', 'removals.held', 'robots.changed', 'webhook.test'"
# The rules as of this revision, with the codes of problems and errors that they stand for.
RULES = {
    "sitemap-missing": ("no_sitemap",),
    "sitemap-http-error": ("http_not_found", "http_status_unexpected", "server_error"),
    "sitemap-network-error": (
        "dns_error",
        "dns_name_unknown",
        "connection_failed",
        "tls_error",
        "tls_not_spoken",
        "timeout",
        "too_slow",
        "http_protocol",
    ),
    "sitemap-redirect-broken": (
        "redirect_invalid",
        "redirect_scheme",
        "redirect_loop",
        "too_many_redirects",
    ),
    "sitemap-refused-to-us": ("blocked", "rate_limited"),
    "sitemap-payment-required": ("payment_required",),
    "robots-unreachable": ("robots_unreachable",),
    "sitemap-empty-response": ("empty",),
    "sitemap-is-html": ("html_instead",),
    "sitemap-soft-404": ("soft_404",),
    "robots-too-large": ("robots_truncated",),
    "gzip-corrupt": ("corrupt",),
    "gzip-trailing-garbage": ("gzip_trailing_garbage",),
    "document-unreadable": (
        "encoding_unsupported",
        "encoding_chain",
        "gzip_members",
        "bomb",
        "xml_entities",
        "xml_limits",
        "xml_token_too_long",
    ),
    "encoding-not-utf8": ("encoding_not_utf8",),
    "encoding-lie": ("encoding_lie",),
    "encoding-unknown": ("encoding_unknown",),
    "encoding-conflict": ("encoding_conflict",),
    "leading-blanks": ("leading_blanks",),
    "xml-malformed": ("entry_malformed", "entry_salvaged", "xml_malformed"),
    "document-cut": ("truncated",),
    "content-after-end": ("content_after_end",),
    "doctype-present": ("doctype",),
    "bare-ampersand": ("bare_ampersand",),
    "html-entity": ("html_entity",),
    "forbidden-character": ("forbidden_char",),
    "root-unknown": ("not_a_sitemap",),
    "namespace-wrong": ("namespace",),
    "element-twice": ("several_locs",),
    "element-missing": ("loc_missing",),
    "extras-cut": ("extras_cut",),
    "too-many-urls": ("over_50000_entries", "too_many_entries"),
    "too-large": ("over_50_mib", "too_large"),
    "index-too-deep": ("depth_limit",),
    "index-cross-host": ("cross_host",),
    "sitemaps-identical": ("duplicate_content",),
    "url-invalid": ("bad_url",),
    "url-relative": ("relative_url",),
    "url-too-long": ("url_long",),
    "url-over-8192": ("url_too_long",),
    "url-control-character": ("control_char",),
    "url-undecodable": ("bad_unicode",),
    "url-credentials": ("credentials",),
    "url-other-host": ("off_host",),
    "url-outside-directory": ("scope",),
    "url-private-host": ("private_host",),
    "url-twice": ("duplicate_url",),
    "lastmod-invalid": ("lastmod_invalid",),
    "lastmod-future": ("lastmod_future",),
    "changefreq-invalid": ("changefreq_invalid",),
    "priority-invalid": ("priority_invalid",),
}


def upgrade() -> None:
    """One new table, and nullable columns; sites and documents count as not judged yet."""
    for table in ("domains", "sitemaps"):
        # What exists now was not judged; a default spares rewriting the rows.
        op.execute(f"ALTER TABLE {table} ADD COLUMN rules_version integer DEFAULT 0")
        op.execute(f"ALTER TABLE {table} ALTER COLUMN rules_version DROP DEFAULT")
    op.execute("ALTER TABLE domains ADD COLUMN judge_urls_at timestamptz")
    op.execute(
        "UPDATE domains SET judge_urls_at = now() "
        "WHERE baseline_scan_id IS NOT NULL AND deleted_at IS NULL"
    )
    op.execute(
        "CREATE INDEX ix_domains_judge_urls_at ON domains (judge_urls_at) "
        "WHERE judge_urls_at IS NOT NULL"
    )
    op.execute(
        """
        CREATE TABLE findings (
            id bigint GENERATED ALWAYS AS IDENTITY,
            domain_id uuid NOT NULL,
            sitemap_id uuid,
            code text NOT NULL,
            count bigint NOT NULL,
            samples jsonb DEFAULT '[]' NOT NULL,
            detail text DEFAULT '' NOT NULL,
            announced boolean DEFAULT false NOT NULL,
            first_scan_id bigint NOT NULL,
            last_scan_id bigint NOT NULL,
            first_seen_at timestamptz DEFAULT now() NOT NULL,
            last_seen_at timestamptz DEFAULT now() NOT NULL,
            resolved_at timestamptz,
            accepted_at timestamptz,
            accepted_by uuid,
            accepted_reason text,
            accepted_count bigint,
            CONSTRAINT pk_findings PRIMARY KEY (id),
            CONSTRAINT uq_findings_sitemap_id_domain_id_code UNIQUE NULLS NOT DISTINCT
                (sitemap_id, domain_id, code),
            CONSTRAINT fk_findings_domain_id FOREIGN KEY (domain_id)
                REFERENCES domains (id) ON DELETE CASCADE,
            CONSTRAINT fk_findings_sitemap_id FOREIGN KEY (sitemap_id)
                REFERENCES sitemaps (id) ON DELETE CASCADE,
            CONSTRAINT fk_findings_accepted_by FOREIGN KEY (accepted_by) REFERENCES users (id)
        )
        """
    )
    op.execute("CREATE INDEX ix_findings_domain_id_code_id ON findings (domain_id, code, id)")
    op.execute(
        "CREATE INDEX ix_findings_unannounced ON findings (domain_id) "
        "WHERE announced <> (resolved_at IS NULL)"
    )
    _allow("feed_events", "kind", f"{EVENT_KINDS}, 'finding_new', 'finding_resolved'")
    _allow("webhook_deliveries", "type", f"{MESSAGES}, 'findings.new', 'findings.resolved'")
    _take_over_problems()


def _take_over_problems() -> None:
    pairs = ", ".join(f"('{of}', '{rule}')" for rule, codes in RULES.items() for of in codes)
    op.execute(
        f"""
        WITH rules (problem, rule) AS (VALUES {pairs}), known AS (
            SELECT p.domain_id, p.sitemap_id, rule, p.count, p.samples, '' AS detail,
                p.first_scan_id, p.last_scan_id, p.first_seen_at, p.last_seen_at
            FROM domain_problems p JOIN rules ON problem = p.code
            WHERE p.resolved_at IS NULL
            UNION ALL
            SELECT s.domain_id, s.id, rule, 1, '[]'::jsonb, coalesce(s.error, ''),
                scan.id, scan.id, coalesce(s.last_read_at, now()), coalesce(s.last_read_at, now())
            FROM sitemaps s JOIN rules ON problem = s.error_code
            JOIN LATERAL (
                SELECT id FROM scans WHERE domain_id = s.domain_id ORDER BY id DESC LIMIT 1
            ) scan ON true
            WHERE s.status = 'failed' AND s.gone_at IS NULL
        )
        INSERT INTO findings (domain_id, sitemap_id, code, count, samples, detail, announced,
            first_scan_id, last_scan_id, first_seen_at, last_seen_at)
        SELECT domain_id, sitemap_id, rule, sum(count),
            (array_agg(samples ORDER BY count DESC))[1], (array_agg(detail ORDER BY count DESC))[1],
            true, min(first_scan_id), max(last_scan_id), min(first_seen_at), max(last_seen_at)
        FROM known GROUP BY domain_id, sitemap_id, rule
        """
    )


def downgrade() -> None:
    """Without findings; problems and the errors of documents are kept as they are."""
    op.execute("DELETE FROM feed_events WHERE kind IN ('finding_new', 'finding_resolved')")
    op.execute("DELETE FROM webhook_deliveries WHERE type IN ('findings.new', 'findings.resolved')")
    _allow("webhook_deliveries", "type", MESSAGES)
    _allow("feed_events", "kind", EVENT_KINDS)
    op.drop_table("findings")
    op.execute("DROP INDEX ix_domains_judge_urls_at")
    op.execute("ALTER TABLE sitemaps DROP COLUMN rules_version")
    op.execute("ALTER TABLE domains DROP COLUMN rules_version, DROP COLUMN judge_urls_at")


def _allow(table: str, column: str, words: str) -> None:
    name = f"ck_{table}_{column}"
    op.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    op.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} CHECK ({column} IN ({words}))")
