"""No digests of entries: all that a changed document lists is read and compared."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop the column. No row is rewritten; its space is reused as rows change."""
    op.drop_column("sitemap_urls", "entry_digest")


def downgrade() -> None:
    """Add the column again, empty."""
    op.execute("ALTER TABLE sitemap_urls ADD COLUMN entry_digest bigint")
