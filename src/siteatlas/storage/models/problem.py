"""Problems of documents, each with a few samples."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKey, Index, func, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from siteatlas.storage.models.base import Base, CreatedAt


class DomainProblem(Base):
    """One kind of problem in one document, as the last read that showed it found it.

    `resolved_at` is when a complete read no longer showed it; the row is kept. Scan numbers are
    kept when the scan is pruned.
    """

    __tablename__ = "domain_problems"
    __table_args__ = (
        Index("ix_domain_problems_domain_id_code_sitemap_id", "domain_id", "code", "sitemap_id"),
    )

    sitemap_id: Mapped[UUID] = mapped_column(
        ForeignKey("sitemaps.id", ondelete="CASCADE"), primary_key=True
    )
    code: Mapped[str] = mapped_column(primary_key=True)
    domain_id: Mapped[UUID] = mapped_column(ForeignKey("domains.id", ondelete="CASCADE"))
    count: Mapped[int]
    samples: Mapped[list[dict[str, Any]]] = mapped_column(JSONB(), server_default=text("'[]'"))
    first_scan_id: Mapped[int]
    last_scan_id: Mapped[int]
    first_seen_at: Mapped[CreatedAt]
    last_seen_at: Mapped[datetime] = mapped_column(server_default=func.now())
    resolved_at: Mapped[datetime | None]
