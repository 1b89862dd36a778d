"""Candidates: every address where a sitemap was looked for."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import ForeignKey, Integer
from sqlalchemy.orm import Mapped, mapped_column

from siteatlas.storage.models.base import Base, CreatedAt


class Candidate(Base):
    """What the last scan that requested this address found there."""

    __tablename__ = "candidates"

    domain_id: Mapped[UUID] = mapped_column(
        ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True
    )
    url_hash: Mapped[int] = mapped_column(primary_key=True)
    url: Mapped[str]
    method: Mapped[str]
    verdict: Mapped[str]
    reason: Mapped[str | None]
    type: Mapped[str | None]
    http_status: Mapped[int | None] = mapped_column(Integer)
    scan_id: Mapped[int]
    checked_at: Mapped[CreatedAt]
