"""The digest of the text of each entry, by which unchanged entries are recognized."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. Stored URLs get a digest when they change; no row is rewritten for it."""
    op.execute("ALTER TABLE sitemap_urls ADD COLUMN entry_digest bigint")


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("sitemap_urls", "entry_digest")
