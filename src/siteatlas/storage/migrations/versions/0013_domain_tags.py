"""Tags of domains, and the index by which lists are filtered by them."""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Domains that exist have no tags."""
    op.execute("ALTER TABLE domains ADD COLUMN tags text[] NOT NULL DEFAULT '{}'")
    op.execute("CREATE INDEX ix_domains_tags ON domains USING gin (tags)")


def downgrade() -> None:
    """Drop the tags."""
    op.drop_column("domains", "tags")
