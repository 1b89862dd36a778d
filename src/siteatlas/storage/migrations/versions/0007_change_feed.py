"""The change feed: its head, changes and events; evidence for removals; robots.txt texts."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

CHANGE_KINDS = (
    "'added', 'changed', 'removed', 'moved', 'expired', 'back', "
    "'duplicate_added', 'duplicate_removed'"
)
EVENT_KINDS = (
    "'baseline', 'sitemap_added', 'sitemap_gone', 'lastmod_distrusted', 'removals_held', "
    "'robots_changed', 'origin_changed', 'scan_failed', 'domain_forgotten'"
)


ADDED_COLUMNS = {
    "scans": {
        "scope": "text NOT NULL DEFAULT 'full'",
        "read_url_count": "bigint NOT NULL DEFAULT 0",
        "change_counts": "jsonb",
        "removal_decision": "jsonb",
    },
    "domains": {
        "missing_count": "bigint NOT NULL DEFAULT 0",
        "baseline_scan_id": "bigint",
        "removals_held_since": "timestamptz",
        "last_published_seq": "bigint",
    },
    "sitemaps": {
        "last_complete_at": "timestamptz",
        "read_version": "integer",
        "baseline_scan_id": "bigint",
        "missing_count": "bigint NOT NULL DEFAULT 0",
        "is_window": "boolean NOT NULL DEFAULT false",
        "not_modified_count": "integer NOT NULL DEFAULT 0",
        "validator_lies": "integer NOT NULL DEFAULT 0",
        "lastmod_trusted": "boolean NOT NULL DEFAULT true",
        "lastmod_streak": "integer NOT NULL DEFAULT 0",
        "lastmod_sample": "jsonb",
        "vanished_scan_id": "bigint",
        "vanished_at": "timestamptz",
        "gone_at": "timestamptz",
    },
}


def upgrade() -> None:
    """Add the tables and columns, then bring the data of the version before into their form.

    Nobody reads or writes `sitemap_urls` while its index is built, so that comes last.
    """
    _create_feed_tables()
    _create_robots_files()
    _add_columns()
    _start_feed_at_last_number()
    _forget_validators()
    _restart_running_scans()
    op.execute(
        "CREATE INDEX ix_sitemap_urls_missing ON sitemap_urls (sitemap_id, missing_scan_id) "
        "WHERE missing_scan_id IS NOT NULL"
    )
    op.execute("CREATE INDEX ix_sitemap_urls_url_hash ON sitemap_urls (url_hash)")


def downgrade() -> None:
    """Forget the feed; numbers of scans continue from a sequence."""
    op.execute("DROP INDEX ix_sitemap_urls_url_hash")
    op.execute("DROP INDEX ix_sitemap_urls_missing")
    op.execute("CREATE SEQUENCE scans_published_seq")
    op.execute("SELECT setval('scans_published_seq', greatest(seq, 1)) FROM feed_head")
    for table in ("robots_files", "feed_events", "url_changes", "feed_head"):
        op.drop_table(table)
    op.drop_index("ix_scans_domain_id_published_seq", "scans")
    op.drop_constraint(op.f("ck_scans_scope"), "scans")
    for table, names in ADDED_COLUMNS.items():
        for name in names:
            op.drop_column(table, name)


def _create_feed_tables() -> None:
    op.execute(
        """
        CREATE TABLE feed_head (
            id smallint NOT NULL,
            seq bigint NOT NULL DEFAULT 0,
            retained_from bigint NOT NULL DEFAULT 0,
            feed_id uuid NOT NULL DEFAULT gen_random_uuid(),
            CONSTRAINT pk_feed_head PRIMARY KEY (id),
            CONSTRAINT ck_feed_head_one_row CHECK (id = 1)
        ) WITH (
            fillfactor = 10, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0
        )
        """
    )
    op.execute(
        f"""
        CREATE TABLE url_changes (
            scan_id bigint NOT NULL,
            sitemap_id uuid NOT NULL,
            url_hash bigint NOT NULL,
            kind text NOT NULL,
            url text NOT NULL,
            before jsonb,
            after jsonb,
            previous_sitemap_id uuid,
            evidence text,
            not_before timestamptz,
            not_after timestamptz,
            CONSTRAINT pk_url_changes PRIMARY KEY (scan_id, sitemap_id, url_hash),
            CONSTRAINT ck_url_changes_kind CHECK (kind IN ({CHANGE_KINDS}))
        )
        """
    )
    op.execute(
        "CREATE INDEX ix_url_changes_sitemap_id_url_hash_scan_id "
        "ON url_changes (sitemap_id, url_hash, scan_id)"
    )
    op.execute(
        f"""
        CREATE TABLE feed_events (
            id bigint GENERATED ALWAYS AS IDENTITY,
            scan_id bigint,
            seq bigint,
            domain_id uuid NOT NULL,
            domain text NOT NULL,
            kind text NOT NULL,
            sitemap_id uuid,
            sitemap text,
            data jsonb NOT NULL DEFAULT '{{}}',
            not_before timestamptz,
            not_after timestamptz,
            created_at timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT pk_feed_events PRIMARY KEY (id),
            CONSTRAINT ck_feed_events_kind CHECK (kind IN ({EVENT_KINDS}))
        )
        """
    )
    op.execute(
        "CREATE INDEX ix_feed_events_scan_id ON feed_events (scan_id, id) WHERE scan_id IS NOT NULL"
    )
    op.execute("CREATE INDEX ix_feed_events_seq ON feed_events (seq, id) WHERE seq IS NOT NULL")


def _create_robots_files() -> None:
    op.execute(
        """
        CREATE TABLE robots_files (
            id bigint GENERATED ALWAYS AS IDENTITY,
            domain_id uuid NOT NULL,
            origin text NOT NULL,
            content_hash text NOT NULL,
            content text NOT NULL,
            http_status integer,
            truncated boolean NOT NULL DEFAULT false,
            first_seen_at timestamptz NOT NULL DEFAULT now(),
            last_seen_at timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT pk_robots_files PRIMARY KEY (id),
            CONSTRAINT fk_robots_files_domain_id
                FOREIGN KEY (domain_id) REFERENCES domains (id) ON DELETE CASCADE
        )
        """
    )
    op.execute(
        "CREATE INDEX ix_robots_files_domain_id_origin_id "
        "ON robots_files (domain_id, origin, id DESC)"
    )


def _add_columns() -> None:
    for table, columns in ADDED_COLUMNS.items():
        added = ", ".join(f"ADD COLUMN {name} {type_}" for name, type_ in columns.items())
        op.execute(f"ALTER TABLE {table} {added}")
    op.create_check_constraint(
        op.f("ck_scans_scope"), "scans", "scope IN ('full', 'light', 'filtered', 'document')"
    )
    op.execute(
        "CREATE INDEX ix_scans_domain_id_published_seq ON scans (domain_id, published_seq) "
        "WHERE published_seq IS NOT NULL"
    )
    op.execute("UPDATE scans SET read_url_count = url_count WHERE url_count > 0")


def _start_feed_at_last_number() -> None:
    """Numbers given so far have no events: the feed is retained from the last of them."""
    op.execute(
        "INSERT INTO feed_head (id, seq, retained_from) "
        "SELECT 1, last, last FROM (SELECT coalesce(max(published_seq), 0) AS last FROM scans) _"
    )
    op.execute("DROP SEQUENCE scans_published_seq")
    op.execute(
        """
        UPDATE domains SET last_published_seq = published.last
        FROM (
            SELECT domain_id, max(published_seq) AS last FROM scans
            WHERE published_seq IS NOT NULL GROUP BY domain_id
        ) AS published
        WHERE domains.id = published.domain_id
        """
    )


def _forget_validators() -> None:
    """Make the next read of each document a full one that brings its rows up to date silently.

    Until now no URL was ever removed; a document that answers 304 would keep them for ever.
    """
    op.execute(
        """
        UPDATE sitemaps SET
            etag = NULL, last_modified = NULL, content_hash = NULL,
            read_version = CASE WHEN last_read_at IS NULL THEN NULL ELSE 0 END,
            last_complete_at = (
                SELECT max(finished_at) FROM sitemap_scans
                WHERE sitemap_scans.sitemap_id = sitemaps.id
                    AND sitemap_scans.state IN ('complete', 'unchanged')
            )
        """
    )


def _restart_running_scans() -> None:
    """What a running scan has read was compared by the rules of the version before."""
    op.execute(
        """
        UPDATE sitemap_scans SET state = 'pending', error_code = NULL, http_status = NULL
        FROM scans WHERE scans.id = sitemap_scans.scan_id AND scans.state = 'running'
        """
    )
