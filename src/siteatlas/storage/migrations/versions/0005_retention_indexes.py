"""Indexes by which retention finds what is due without reading whole tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

INDEXES = (
    ("ix_jobs_ended", "jobs", ["job_type", "status", "finished_at"], "finished_at IS NOT NULL"),
    ("ix_domains_deleted_at", "domains", ["deleted_at"], "deleted_at IS NOT NULL"),
    ("ix_batches_open", "batches", ["created_at"], "finished_at IS NULL"),
    ("ix_batches_finished_at", "batches", ["finished_at"], "finished_at IS NOT NULL"),
    (
        "ix_sitemaps_never_asked",
        "sitemaps",
        ["domain_id", "created_at"],
        "status = 'pending' AND type IS NULL",
    ),
)


def upgrade() -> None:
    """Add partial indexes; no row is rewritten."""
    for name, table, columns, condition in INDEXES:
        op.create_index(name, table, columns, postgresql_where=sa.text(condition))


def downgrade() -> None:
    """Drop them again."""
    for name, table, _columns, _condition in INDEXES:
        op.drop_index(name, table_name=table)
