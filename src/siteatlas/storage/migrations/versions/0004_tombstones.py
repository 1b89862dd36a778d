"""Deleted sites give up their name, so that the same host can be added as a new site."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Rename deleted sites; a job of theirs that a retry had made active again is cancelled."""
    op.execute(
        "UPDATE domains SET domain = '#' || id, watched = false, next_scan_at = NULL "
        "WHERE deleted_at IS NOT NULL"
    )
    op.execute(
        "UPDATE jobs SET status = 'cancelled', lease_until = NULL, "
        "finished_at = now(), updated_at = now() "
        "FROM domains WHERE domains.id = jobs.domain_id AND domains.deleted_at IS NOT NULL "
        "AND jobs.status IN ('pending', 'processing')"
    )
    op.execute(
        "UPDATE scans SET state = 'cancelled', finished_at = now() "
        "FROM domains WHERE domains.id = scans.domain_id AND domains.deleted_at IS NOT NULL "
        "AND scans.state = 'running'"
    )


def downgrade() -> None:
    """Nothing to undo: a deleted site is removed under either name."""
