"""Who wants a job, the request headers of a site, and the boot of a worker's machine."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def _created_at() -> sa.Column[datetime]:
    time = sa.DateTime(timezone=True)
    return sa.Column("created_at", time, server_default=sa.func.now(), nullable=False)


def upgrade() -> None:
    """Add two tables and a column. Who joined a job before this is not known."""
    op.create_table(
        "job_requests",
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        _created_at(),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name="fk_job_requests_job_id_jobs", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_job_requests_user_id_users"),
        sa.PrimaryKeyConstraint("job_id", "user_id", name="pk_job_requests"),
    )
    op.drop_column("jobs", "shared")
    op.create_table(
        "site_headers",
        sa.Column("domain_id", sa.Uuid(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("headers", JSONB(), nullable=False),
        sa.Column("created_by", sa.Uuid(), nullable=False),
        _created_at(),
        sa.ForeignKeyConstraint(
            ["domain_id"],
            ["domains.id"],
            name="fk_site_headers_domain_id_domains",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["created_by"], ["users.id"], name="fk_site_headers_created_by_users"
        ),
        sa.PrimaryKeyConstraint("domain_id", name="pk_site_headers"),
    )
    op.add_column("workers", sa.Column("boot_id", sa.Text()))
    name, ended = "ix_audit_events_backed_up", sa.text("action = 'db backup ended'")
    op.create_index(name, "audit_events", ["created_at"], postgresql_where=ended)


def downgrade() -> None:
    """Drop them."""
    op.drop_index("ix_audit_events_backed_up", "audit_events")
    op.drop_column("workers", "boot_id")
    op.drop_table("site_headers")
    op.add_column(
        "jobs", sa.Column("shared", sa.Boolean(), server_default=sa.false(), nullable=False)
    )
    op.drop_table("job_requests")
