"""The robots.txt files of a site, with their history."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, Identity, Index, Integer, func, text
from sqlalchemy.orm import Mapped, mapped_column

from siteatlas.storage.models.base import Base, CreatedAt


class RobotsFile(Base):
    """One version of the robots.txt of an origin; a version that differs is a new row."""

    __tablename__ = "robots_files"
    __table_args__ = (
        Index("ix_robots_files_domain_id_origin_id", "domain_id", "origin", text("id DESC")),
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    domain_id: Mapped[UUID] = mapped_column(ForeignKey("domains.id", ondelete="CASCADE"))
    origin: Mapped[str]
    content_hash: Mapped[str]
    content: Mapped[str]
    http_status: Mapped[int | None] = mapped_column(Integer)
    truncated: Mapped[bool] = mapped_column(server_default=text("false"))
    first_seen_at: Mapped[CreatedAt]
    last_seen_at: Mapped[datetime] = mapped_column(server_default=func.now())
