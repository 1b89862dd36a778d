"""An index by which a URL is found in the document that it moved from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

NAME = "ix_url_changes_previous_sitemap_id_url_hash"


def upgrade() -> None:
    """Add a partial index; few changes are moves."""
    op.create_index(
        NAME,
        "url_changes",
        ["previous_sitemap_id", "url_hash"],
        postgresql_where=sa.text("previous_sitemap_id IS NOT NULL"),
    )


def downgrade() -> None:
    """Drop it again."""
    op.drop_index(NAME, table_name="url_changes")
