"""How far the change feed has been pruned, and indexes by which its readers and retention look."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing before the feed has events: it counts as pruned."""
    op.execute("ALTER TABLE feed_head ADD COLUMN pruned_to bigint NOT NULL DEFAULT 0")
    op.execute("UPDATE feed_head SET pruned_to = retained_from")
    op.execute(
        "CREATE INDEX ix_feed_events_domain_id_seq ON feed_events (domain_id, seq) "
        "WHERE seq IS NOT NULL"
    )
    op.execute(
        "CREATE INDEX ix_domains_removals_held ON domains (removals_held_since) "
        "WHERE removals_held_since IS NOT NULL"
    )
    op.execute(
        "CREATE INDEX ix_sitemap_urls_removed_at ON sitemap_urls (removed_at) "
        "WHERE removed_at IS NOT NULL"
    )


def downgrade() -> None:
    """Drop the column and the indexes."""
    for name in ("sitemap_urls_removed_at", "domains_removals_held", "feed_events_domain_id_seq"):
        op.execute(f"DROP INDEX ix_{name}")
    op.drop_column("feed_head", "pruned_to")
