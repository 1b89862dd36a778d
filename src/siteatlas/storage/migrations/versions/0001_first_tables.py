"""The first tables: users, sites, the queue, scans, documents and their URLs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

LOCAL_USER = "5905e9fe-6c61-4694-b09a-6602017b000a"
SYSTEM_USER = "5905e9fe-6c61-4694-b09a-6602017b0000"


def upgrade() -> None:
    """Create the tables and the two users that exist from the start."""
    op.execute(sa.schema.CreateSequence(sa.Sequence("scans_published_seq")))
    op.create_table(
        "sitemap_urls",
        sa.Column("sitemap_id", sa.Uuid(), nullable=False),
        sa.Column("url_hash", sa.BigInteger(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("lastmod", sa.DateTime(timezone=True), nullable=True),
        sa.Column("changefreq", sa.Text(), nullable=True),
        sa.Column("priority", sa.REAL(), nullable=True),
        sa.Column("extras", postgresql.JSONB(), nullable=True),
        sa.Column("fingerprint", sa.BigInteger(), nullable=False),
        sa.Column(
            "first_seen_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("missing_scan_id", sa.BigInteger(), nullable=True),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("sitemap_id", "url_hash", name=op.f("pk_sitemap_urls")),
        postgresql_with={
            "autovacuum_vacuum_insert_scale_factor": 0.2,
            "autovacuum_analyze_scale_factor": 0.05,
        },
    )
    op.create_table(
        "users",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("name", name=op.f("uq_users_name")),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("hostname", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("running", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "last_seen_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("last_tick_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("next_tick_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    op.create_table(
        "batches",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("completed", sa.Integer(), nullable=True),
        sa.Column("failed", sa.Integer(), nullable=True),
        sa.Column("max_pages", sa.BigInteger(), nullable=True),
        sa.Column("created_by", sa.Uuid(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_batches_created_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batches")),
    )
    op.create_table(
        "domains",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=True),
        sa.Column("base_url", sa.Text(), nullable=False),
        sa.Column("watched", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("scan_interval_hours", sa.Double(), nullable=True),
        sa.Column("next_scan_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("max_pages", sa.BigInteger(), nullable=True),
        sa.Column("last_scan_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_scan_status", sa.Text(), nullable=True),
        sa.Column("last_error_code", sa.Text(), nullable=True),
        sa.Column("failures_in_a_row", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("url_count", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "distinct_url_count", sa.BigInteger(), server_default=sa.text("0"), nullable=False
        ),
        sa.Column("sitemap_count", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_by", sa.Uuid(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_domains_created_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_domains")),
        sa.UniqueConstraint("domain", name=op.f("uq_domains_domain")),
    )
    op.create_index(
        "ix_domains_due",
        "domains",
        ["next_scan_at"],
        unique=False,
        postgresql_where=sa.text("watched AND NOT paused AND deleted_at IS NULL"),
    )
    op.create_table(
        "candidates",
        sa.Column("domain_id", sa.Uuid(), nullable=False),
        sa.Column("url_hash", sa.BigInteger(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("type", sa.Text(), nullable=True),
        sa.Column("http_status", sa.Integer(), nullable=True),
        sa.Column("scan_id", sa.BigInteger(), nullable=False),
        sa.Column(
            "checked_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["domain_id"], ["domains.id"], name=op.f("fk_candidates_domain_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("domain_id", "url_hash", name=op.f("pk_candidates")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("job_id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("job_type", sa.Text(), server_default=sa.text("'sitemap'"), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'pending'"), nullable=False),
        sa.Column("priority", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "run_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("domain_id", sa.Uuid(), nullable=True),
        sa.Column("created_by", sa.Uuid(), nullable=False),
        sa.Column("dedup_key", sa.Text(), nullable=True),
        sa.Column("progress", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.Column("result_data", postgresql.JSONB(), nullable=True),
        sa.Column("job_metadata", postgresql.JSONB(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("fence", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("max_attempts", sa.Integer(), server_default=sa.text("5"), nullable=False),
        sa.Column("rescues", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("snoozes", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("worker_id", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'processing', 'completed', 'failed', 'cancelled')",
            name=op.f("ck_jobs_status"),
        ),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_jobs_created_by")),
        sa.ForeignKeyConstraint(
            ["domain_id"], ["domains.id"], name=op.f("fk_jobs_domain_id"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("job_id", name=op.f("uq_jobs_job_id")),
        postgresql_with={
            "fillfactor": 75,
            "autovacuum_vacuum_scale_factor": 0.01,
            "autovacuum_vacuum_threshold": 100,
            "autovacuum_vacuum_cost_delay": 0,
        },
    )
    op.create_index(
        "ix_jobs_claim",
        "jobs",
        ["priority", "run_at", "id"],
        unique=False,
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.create_index(
        "ix_jobs_domain_id_id", "jobs", ["domain_id", sa.literal_column("id DESC")], unique=False
    )
    op.create_index(
        "ix_jobs_live",
        "jobs",
        ["id"],
        unique=False,
        postgresql_where=sa.text("status = 'processing'"),
    )
    op.create_index(
        "ix_jobs_status_id", "jobs", ["status", sa.literal_column("id DESC")], unique=False
    )
    op.create_index(
        "uq_jobs_dedup_key",
        "jobs",
        ["dedup_key"],
        unique=True,
        postgresql_where=sa.text("status IN ('pending', 'processing')"),
    )
    op.create_table(
        "scans",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("job_uuid", sa.Uuid(), nullable=False),
        sa.Column("domain_id", sa.Uuid(), nullable=False),
        sa.Column("created_by", sa.Uuid(), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'running'"), nullable=False),
        sa.Column("partial", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column(
            "reasons",
            postgresql.JSONB(),
            server_default=sa.text("'[]'"),
            nullable=False,
        ),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("max_pages", sa.BigInteger(), nullable=True),
        sa.Column("sitemap_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("url_count", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "distinct_url_count", sa.BigInteger(), server_default=sa.text("0"), nullable=False
        ),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("published_seq", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "state IN ('running', 'published', 'failed', 'cancelled')", name=op.f("ck_scans_state")
        ),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_scans_created_by")),
        sa.ForeignKeyConstraint(
            ["domain_id"], ["domains.id"], name=op.f("fk_scans_domain_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scans")),
        sa.UniqueConstraint("job_id", name=op.f("uq_scans_job_id")),
        sa.UniqueConstraint("published_seq", name=op.f("uq_scans_published_seq")),
    )
    op.create_index(
        "ix_scans_domain_id_id", "scans", ["domain_id", sa.literal_column("id DESC")], unique=False
    )
    op.create_table(
        "sitemaps",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("domain_id", sa.Uuid(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("url_hash", sa.BigInteger(), nullable=False),
        sa.Column("requested_url", sa.Text(), nullable=True),
        sa.Column("type", sa.Text(), nullable=True),
        sa.Column("discovery_method", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'pending'"), nullable=False),
        sa.Column("first_job_id", sa.Uuid(), nullable=False),
        sa.Column("last_job_id", sa.Uuid(), nullable=False),
        sa.Column("created_by", sa.Uuid(), nullable=False),
        sa.Column("http_status", sa.Integer(), nullable=True),
        sa.Column("wire_bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("decoded_bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("fetch_seconds", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.Column("lastmod", sa.DateTime(timezone=True), nullable=True),
        sa.Column("etag", sa.Text(), nullable=True),
        sa.Column("last_modified", sa.Text(), nullable=True),
        sa.Column("content_hash", sa.Text(), nullable=True),
        sa.Column("url_count", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("has_images", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("has_videos", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("has_news", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("last_read_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'completed', 'failed')", name=op.f("ck_sitemaps_status")
        ),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_sitemaps_created_by")),
        sa.ForeignKeyConstraint(
            ["domain_id"], ["domains.id"], name=op.f("fk_sitemaps_domain_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sitemaps")),
        sa.UniqueConstraint("domain_id", "url_hash", name=op.f("uq_sitemaps_domain_id_url_hash")),
    )
    op.create_index("ix_sitemaps_domain_id_id", "sitemaps", ["domain_id", "id"], unique=False)
    op.create_table(
        "batch_items",
        sa.Column("batch_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=True),
        sa.Column("job_uuid", sa.Uuid(), nullable=True),
        sa.Column("status", sa.Text(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["batch_id"], ["batches.id"], name=op.f("fk_batch_items_batch_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_batch_items_job_id"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("batch_id", "position", name=op.f("pk_batch_items")),
    )
    op.create_index("ix_batch_items_job_id", "batch_items", ["job_id"], unique=False)
    op.create_table(
        "job_attempts",
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Text(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "ended_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_job_attempts_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "fence", name=op.f("pk_job_attempts")),
    )
    op.create_table(
        "sitemap_links",
        sa.Column("parent_id", sa.Uuid(), nullable=False),
        sa.Column("child_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["child_id"],
            ["sitemaps.id"],
            name=op.f("fk_sitemap_links_child_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["parent_id"],
            ["sitemaps.id"],
            name=op.f("fk_sitemap_links_parent_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("parent_id", "child_id", name=op.f("pk_sitemap_links")),
    )
    op.create_index("ix_sitemap_links_child_id", "sitemap_links", ["child_id"], unique=False)
    op.create_table(
        "sitemap_scans",
        sa.Column("scan_id", sa.BigInteger(), nullable=False),
        sa.Column("sitemap_id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'pending'"), nullable=False),
        sa.Column("http_status", sa.Integer(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("url_count", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("skipped_count", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("wire_bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("decoded_bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("seconds", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.Column("problems", postgresql.JSONB(), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('pending', 'complete', 'unchanged', 'cut', 'unread')",
            name=op.f("ck_sitemap_scans_state"),
        ),
        sa.ForeignKeyConstraint(
            ["scan_id"], ["scans.id"], name=op.f("fk_sitemap_scans_scan_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["sitemap_id"],
            ["sitemaps.id"],
            name=op.f("fk_sitemap_scans_sitemap_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("scan_id", "sitemap_id", name=op.f("pk_sitemap_scans")),
    )
    op.create_index(
        "ix_sitemap_scans_sitemap_id_scan_id",
        "sitemap_scans",
        ["sitemap_id", sa.literal_column("scan_id DESC")],
        unique=False,
    )
    op.execute(
        sa.text(
            "INSERT INTO users (id, name) VALUES (:local, 'local'), (:system, 'system')"
        ).bindparams(
            sa.bindparam("local", LOCAL_USER, sa.Uuid(as_uuid=False)),
            sa.bindparam("system", SYSTEM_USER, sa.Uuid(as_uuid=False)),
        )
    )


def downgrade() -> None:
    """Drop every table."""
    op.drop_table("sitemap_scans")
    op.drop_table("sitemap_links")
    op.drop_table("job_attempts")
    op.drop_table("batch_items")
    op.drop_table("sitemaps")
    op.drop_table("scans")
    op.drop_table("jobs")
    op.drop_table("candidates")
    op.drop_table("domains")
    op.drop_table("batches")
    op.drop_table("workers")
    op.drop_table("users")
    op.drop_table("sitemap_urls")
    op.execute(sa.schema.DropSequence(sa.Sequence("scans_published_seq")))
