"""Connections of the driver: what they need not ask the server again."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest
from sqlalchemy import ARRAY, BigInteger, bindparam, func, select

from siteatlas.storage.session import get_background_session

pytestmark = pytest.mark.usefixtures("database")


async def test_the_description_of_a_built_in_type_is_asked_for_once_per_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[list[int]] = []
    introspect = asyncpg.Connection._introspect_types

    async def counted(connection: asyncpg.Connection, typeoids: Iterable[int], *rest: Any) -> Any:
        asked.append(list(typeoids))
        return await introspect(connection, typeoids, *rest)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", counted)
    monkeypatch.setattr("siteatlas.storage.engine._built_in_types", {})
    numbers = select(func.unnest(bindparam("numbers", type_=ARRAY(BigInteger))))
    async with AsyncExitStack() as stack:
        for _ in range(3):
            session = await stack.enter_async_context(get_background_session())
            assert list(await session.scalars(numbers, {"numbers": [3, 1, 2]})) == [3, 1, 2]
    assert len(asked) == 1
