"""The declarative base, and the column types that all tables share."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, DateTime, MetaData, Text, Uuid, func
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, mapped_column

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

CreatedAt = Annotated[datetime, mapped_column(DateTime(timezone=True), server_default=func.now())]


class Base(DeclarativeBase):
    """Text, not varchar; aware times; 64-bit numbers; JSONB."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {
        str: Text(),
        int: BigInteger(),
        datetime: DateTime(timezone=True),
        UUID: Uuid(),
        dict[str, Any]: JSONB(),
        dict[str, int]: JSONB(),
        list[str]: JSONB(),
    }


def one_of(column: str, words: type[StrEnum]) -> CheckConstraint:
    """A CHECK that holds a text column to the words of an enumeration."""
    listed = ", ".join(f"'{word.value}'" for word in words)
    return CheckConstraint(f"{column} IN ({listed})", name=column)
