"""Problems of documents with samples, and `lastmod` as it was listed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table and a nullable column; no row is rewritten.

    The column comes last: from then until the commit nobody reads or writes `sitemap_urls`.
    """
    op.create_table(
        "domain_problems",
        sa.Column("sitemap_id", sa.Uuid(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("domain_id", sa.Uuid(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("samples", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("first_scan_id", sa.BigInteger(), nullable=False),
        sa.Column("last_scan_id", sa.BigInteger(), nullable=False),
        sa.Column(
            "first_seen_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "last_seen_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("resolved_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["domain_id"],
            ["domains.id"],
            name=op.f("fk_domain_problems_domain_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["sitemap_id"],
            ["sitemaps.id"],
            name=op.f("fk_domain_problems_sitemap_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("sitemap_id", "code", name=op.f("pk_domain_problems")),
    )
    op.create_index(
        "ix_domain_problems_domain_id_code_sitemap_id",
        "domain_problems",
        ["domain_id", "code", "sitemap_id"],
        unique=False,
    )
    _copy_counts()
    op.add_column("sitemap_urls", sa.Column("lastmod_text", sa.Text(), nullable=True))


def downgrade() -> None:
    """Forget the samples and the listed texts."""
    op.drop_table("domain_problems")
    op.drop_column("sitemap_urls", "lastmod_text")


def _copy_counts() -> None:
    """Take over the counts that each document's last read left, without samples."""
    op.execute(
        sa.text(
            """
            INSERT INTO domain_problems (
                sitemap_id, code, domain_id, count, first_scan_id, last_scan_id,
                first_seen_at, last_seen_at
            )
            SELECT last.sitemap_id, problem.key, sitemaps.domain_id, problem.value::bigint,
                   last.scan_id, last.scan_id, last.finished_at, last.finished_at
            FROM (
                SELECT DISTINCT ON (sitemap_id) sitemap_id, scan_id, problems,
                       coalesce(finished_at, now()) AS finished_at
                FROM sitemap_scans
                WHERE state IN ('complete', 'cut')
                ORDER BY sitemap_id, scan_id DESC
            ) AS last
            JOIN sitemaps ON sitemaps.id = last.sitemap_id
            CROSS JOIN LATERAL jsonb_each_text(last.problems) AS problem
            WHERE jsonb_typeof(last.problems) = 'object'
            """
        )
    )
