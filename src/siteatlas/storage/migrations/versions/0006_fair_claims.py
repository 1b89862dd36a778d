"""Jobs are claimed in turn between users, suspects alone; statistics follow a growing queue."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The index by user takes the place of the index by age."""
    op.execute(
        "CREATE INDEX ix_jobs_fair ON jobs (priority, created_by, run_at, id) "
        "WHERE status = 'pending' AND job_type = 'sitemap'"
    )
    op.execute("DROP INDEX ix_jobs_claim")
    op.execute("ALTER TABLE jobs ADD COLUMN alone boolean NOT NULL DEFAULT false")
    op.execute(
        "CREATE INDEX ix_jobs_suspect ON jobs (id) "
        "WHERE status = 'pending' AND job_type = 'sitemap' AND rescues >= 2"
    )
    op.execute(
        "ALTER TABLE jobs SET (autovacuum_analyze_scale_factor = 0.01, "
        "autovacuum_analyze_threshold = 500)"
    )


def downgrade() -> None:
    """The index by age again."""
    op.execute("CREATE INDEX ix_jobs_claim ON jobs (priority, run_at, id) WHERE status = 'pending'")
    op.execute("DROP INDEX ix_jobs_fair")
    op.execute("DROP INDEX ix_jobs_suspect")
    op.execute("ALTER TABLE jobs DROP COLUMN alone")
    op.execute(
        "ALTER TABLE jobs RESET (autovacuum_analyze_scale_factor, autovacuum_analyze_threshold)"
    )
