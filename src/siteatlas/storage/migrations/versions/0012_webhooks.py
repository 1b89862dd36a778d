"""Webhook endpoints and the log of deliveries."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

NOW = sa.text("now()")
ZERO = sa.text("0")
REASONS = "disabled_reason IN ('failing', 'gone', 'requested')"
TYPES = (
    "type IN ('scan.published', 'scan.failed', 'removals.held', 'robots.changed', 'webhook.test')"
)


def _moment(name: str) -> sa.Column[datetime]:
    """A column that holds a time with its zone, or nothing."""
    return sa.Column(name, sa.DateTime(timezone=True), nullable=True)


def _created_at() -> sa.Column[datetime]:
    """The column with the time at which the row was written."""
    return sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW)


def upgrade() -> None:
    """New tables."""
    _create_endpoints()
    _create_deliveries()


def _create_endpoints() -> None:
    """The table of endpoints."""
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("types", JSONB(), nullable=False),
        sa.Column("domains", JSONB(), nullable=True),
        sa.Column("created_by", sa.Uuid(), nullable=False),
        _created_at(),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("previous_secret", sa.Text(), nullable=True),
        _moment("previous_secret_until"),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("position_rank", sa.SmallInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), server_default=ZERO, nullable=False),
        _moment("failing_since"),
        _moment("next_attempt_at"),
        _moment("last_attempt_at"),
        _moment("last_delivered_at"),
        _moment("disabled_at"),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.Column("fence", sa.BigInteger(), server_default=ZERO, nullable=False),
        _moment("lease_until"),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_endpoints"),
        sa.ForeignKeyConstraint(
            ["created_by"], ["users.id"], name="fk_webhook_endpoints_created_by"
        ),
        sa.CheckConstraint(REASONS, name=op.f("ck_webhook_endpoints_disabled_reason")),
    )


def _create_deliveries() -> None:
    """The table of deliveries, with the indexes by which it is listed and pruned."""
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("endpoint_id", sa.Uuid(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=True),
        sa.Column("domain", sa.Text(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("delivered", sa.Boolean(), nullable=False),
        sa.Column("http_status", sa.Integer(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=False),
        _created_at(),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_deliveries"),
        sa.ForeignKeyConstraint(
            ["endpoint_id"],
            ["webhook_endpoints.id"],
            name="fk_webhook_deliveries_endpoint_id",
            ondelete="CASCADE",
        ),
        sa.CheckConstraint(TYPES, name=op.f("ck_webhook_deliveries_type")),
    )
    op.execute(
        "CREATE INDEX ix_webhook_deliveries_endpoint_id_id "
        "ON webhook_deliveries (endpoint_id, id DESC)"
    )
    op.create_index("ix_webhook_deliveries_created_at", "webhook_deliveries", ["created_at"])


def downgrade() -> None:
    """Drop them again."""
    op.drop_table("webhook_deliveries")
    op.drop_table("webhook_endpoints")
