"""Worker processes, as last reported by their heartbeat."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Integer, func, text
from sqlalchemy.orm import Mapped, mapped_column

from siteatlas.storage.models.base import Base, CreatedAt


class Worker(Base):
    """One process. No other table points here, so that a dead worker can always be forgotten.

    One that shut down gracefully has no slots.
    """

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(primary_key=True)
    hostname: Mapped[str]
    pid: Mapped[int] = mapped_column(Integer)
    version: Mapped[str]
    slots: Mapped[int] = mapped_column(Integer)
    running: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    started_at: Mapped[CreatedAt]
    last_seen_at: Mapped[datetime] = mapped_column(server_default=func.now())
    last_tick_at: Mapped[datetime | None]
    next_tick_at: Mapped[datetime | None]
