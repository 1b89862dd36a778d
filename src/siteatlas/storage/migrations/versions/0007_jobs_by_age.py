"""The oldest waiting jobs are found without reading all of them."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """An index by age beside the one by user; each job type has its own part of it."""
    op.execute(
        "CREATE INDEX ix_jobs_age ON jobs (job_type, priority, run_at, id) WHERE status = 'pending'"
    )


def downgrade() -> None:
    """The index by user alone."""
    op.execute("DROP INDEX ix_jobs_age")
