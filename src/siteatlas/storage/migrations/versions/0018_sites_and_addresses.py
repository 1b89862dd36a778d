"""Jobs name the site whose jobs are limited, and the address at which it answered last."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

WAITING = "status = 'pending' AND job_type = 'sitemap'"


def upgrade() -> None:
    """Jobs that are pending during the upgrade have no site and no address: no limit."""
    op.execute("ALTER TABLE domains ADD COLUMN address text")
    op.execute("ALTER TABLE jobs ADD COLUMN site text, ADD COLUMN address text")
    op.execute("DROP INDEX ix_jobs_fair")
    op.execute(
        "CREATE INDEX ix_jobs_fair ON jobs (priority, created_by, run_at, id) "
        f"INCLUDE (site, address, rescues) WHERE {WAITING}"
    )
    op.execute("ALTER INDEX ix_jobs_suspect RENAME TO ix_jobs_alone")
    op.create_table(
        "address_slots",
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("address", name="pk_address_slots"),
    )


def downgrade() -> None:
    """Claims without sites and addresses again."""
    op.drop_table("address_slots")
    op.execute("ALTER INDEX ix_jobs_alone RENAME TO ix_jobs_suspect")
    op.execute("DROP INDEX ix_jobs_fair")
    op.execute(
        f"CREATE INDEX ix_jobs_fair ON jobs (priority, created_by, run_at, id) WHERE {WAITING}"
    )
    op.execute("ALTER TABLE jobs DROP COLUMN site, DROP COLUMN address")
    op.execute("ALTER TABLE domains DROP COLUMN address")
