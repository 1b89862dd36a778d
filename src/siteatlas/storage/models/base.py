"""The declarative base, and the column types that all tables share."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, TypeVar
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    DateTime,
    Dialect,
    MetaData,
    Text,
    TypeDecorator,
    Uuid,
    func,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, mapped_column

EnumT = TypeVar("EnumT", bound=StrEnum)

CreatedAt = Annotated[datetime, mapped_column(DateTime(timezone=True), server_default=func.now())]


class Base(DeclarativeBase):
    """Text, not varchar; aware times; 64-bit numbers; JSONB."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {
        str: Text(),
        int: BigInteger(),
        datetime: DateTime(timezone=True),
        UUID: Uuid(),
        dict[str, Any]: JSONB(),
        dict[str, int]: JSONB(),
        list[str]: JSONB(),
    }


class TextEnum(TypeDecorator[EnumT]):
    """A text column whose values are the members of an enumeration.

    Not `sqlalchemy.Enum`: the column stays TEXT, so that a new member needs no other type.
    """

    impl = Text
    cache_ok = True

    def __init__(self, members: type[EnumT]) -> None:
        super().__init__()
        self.members = members

    def process_bind_param(self, value: EnumT | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """The stored text; ValueError for a text that is not a member."""
        return None if value is None else self.members(value).value

    def process_result_value(self, value: Any | None, dialect: Dialect) -> EnumT | None:  # noqa: ARG002
        """The member with this text; a text of another version is read as an unlisted value."""
        if value is None:
            return None
        try:
            return self.members(value)
        except ValueError:
            return _unlisted_column_value(self.members, value)


def _unlisted_column_value(members: type[EnumT], text: str) -> EnumT:
    """The value of an enum column whose stored text is none of the members.

    One row with such a text must not make a whole list unreadable.
    """
    value = str.__new__(members, text)
    value._name_ = value._value_ = text
    return value


def one_of(column: str, members: type[StrEnum]) -> CheckConstraint:
    """A CHECK that holds a text column to the members of an enumeration."""
    listed = ", ".join(f"'{member.value}'" for member in members)
    return CheckConstraint(f"{column} IN ({listed})", name=column)
