"""Access keys, browser sessions, rate limits and the audit trail; jobs that users share."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

NOW = sa.text("now()")


def _moment(
    name: str, *, nullable: bool = True, default: sa.TextClause | None = None
) -> sa.Column[datetime]:
    """A column that holds a time with its zone."""
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable, server_default=default)


def upgrade() -> None:
    """New tables; the jobs table gets a column with a default, so that no row is rewritten."""
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scopes", JSONB(), nullable=False),
        sa.Column("key_hash", sa.LargeBinary(), nullable=False),
        _moment("created_at", nullable=False, default=NOW),
        _moment("expires_at"),
        _moment("last_used_at"),
        _moment("revoked_at"),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_api_keys_user_id"),
    )
    op.create_table(
        "browser_sessions",
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        _moment("created_at", nullable=False, default=NOW),
        _moment("last_used_at", nullable=False, default=NOW),
        _moment("expires_at", nullable=False),
        sa.PrimaryKeyConstraint("token_hash", name="pk_browser_sessions"),
        sa.UniqueConstraint("id", name="uq_browser_sessions_id"),
        sa.ForeignKeyConstraint(
            ["key_id"], ["api_keys.id"], name="fk_browser_sessions_key_id", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_browser_sessions_key_id", "browser_sessions", ["key_id"])
    op.create_table(
        "rate_limits",
        sa.Column("subject", sa.Text(), nullable=False),
        _moment("paid_off_at", nullable=False),
        sa.PrimaryKeyConstraint("subject", name="pk_rate_limits"),
        prefixes=["UNLOGGED"],
    )
    op.create_table(
        "audit_events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        _moment("created_at", nullable=False, default=NOW),
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("user_name", sa.Text(), nullable=True),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.Column("address", sa.Text(), nullable=True),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=True),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_audit_events"),
    )
    op.create_index("ix_audit_events_created_at", "audit_events", ["created_at"])
    op.execute("ALTER TABLE jobs ADD COLUMN shared boolean NOT NULL DEFAULT false")


def downgrade() -> None:
    """Drop them again; the installation is open afterwards."""
    op.execute("ALTER TABLE jobs DROP COLUMN shared")
    for table in ("audit_events", "rate_limits", "browser_sessions", "api_keys"):
        op.drop_table(table)
