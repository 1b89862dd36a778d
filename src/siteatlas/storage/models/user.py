"""The users who submit jobs."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy.orm import Mapped, mapped_column

from siteatlas.storage.models.base import Base, CreatedAt

LOCAL_USER_ID = UUID("5905e9fe-6c61-4694-b09a-6602017b000a")
SYSTEM_USER_ID = UUID("5905e9fe-6c61-4694-b09a-6602017b0000")


class User(Base):
    """A person or program. Two exist from the start: the local user and the system itself."""

    __tablename__ = "users"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[CreatedAt]
