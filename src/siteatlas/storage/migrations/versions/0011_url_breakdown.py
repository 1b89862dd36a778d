"""Counts of the URLs of a document by section and month."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Let every document that lists URLs be read in full once more, which counts them."""
    op.execute("ALTER TABLE sitemaps ADD COLUMN url_breakdown jsonb")
    op.execute(
        "UPDATE sitemaps SET etag = NULL, last_modified = NULL, content_hash = NULL "
        "WHERE type IS DISTINCT FROM 'index' "
        "AND (etag IS NOT NULL OR last_modified IS NOT NULL OR content_hash IS NOT NULL)"
    )


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("sitemaps", "url_breakdown")
