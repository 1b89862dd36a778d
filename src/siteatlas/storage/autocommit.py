"""The session whose statements commit by themselves, and what functions that only read ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, TypeVarTuple

from sqlalchemy import Result, Select
from sqlalchemy.ext.asyncio import AsyncSession

Columns = TypeVarTuple("Columns")
ValueT = TypeVar("ValueT")
Parameters = Mapping[str, Any]


class Reader(Protocol):
    """What runs a SELECT: a session in a transaction, or one without."""

    async def execute(
        self, statement: Select[*Columns], params: Parameters | None = None, /
    ) -> Result[*Columns]:
        """The rows of a statement."""

    async def scalar(
        self, statement: Select[ValueT], params: Parameters | None = None, /
    ) -> ValueT | None:
        """The first column of the first row."""


class AutocommitSession:
    """Runs each statement in its own transaction.

    It is not an `AsyncSession` and has no `begin`, `add` or `flush`, so that mypy refuses to pass
    it to a function that writes: several writes belong into a transaction.
    """

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def execute(
        self, statement: Select[*Columns], params: Parameters | None = None, /
    ) -> Result[*Columns]:
        """The rows of a statement."""
        async with self._session.begin():
            return await self._session.execute(statement, params)

    async def scalar(
        self, statement: Select[ValueT], params: Parameters | None = None, /
    ) -> ValueT | None:
        """The first column of the first row."""
        async with self._session.begin():
            return await self._session.scalar(statement, params)
