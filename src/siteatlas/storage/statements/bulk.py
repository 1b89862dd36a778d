"""Bulk writes: one prepared statement, executed with the values of many rows.

Unlike a statement with all values in it, this has no limit on the number of rows. Each statement is
built once and cached: building it takes longer than running it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Table, Update, bindparam, delete, func, select, update
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import Base
from siteatlas.storage.tables import table_of

Row = Mapping[str, Any]
Names = tuple[str, ...]
KEPT_STATEMENTS = 256
# Values are made ready for the driver in one go, and the event loop waits for that.
ROWS_AT_A_TIME = 200


async def insert_rows(session: AsyncSession, model: type[Base], rows: Sequence[Row]) -> None:
    """Insert rows; those that already exist are left unchanged."""
    await insert_values(session, _insert_statement(table_of(model)), rows)


async def insert_values(session: AsyncSession, statement: Insert, rows: Sequence[Row]) -> None:
    """Insert rows with a statement that fills more columns than the rows contain."""
    for alike in _by_shape(rows).values():
        for some in _row_chunks(alike):
            await session.execute(statement, some)


async def replace_rows(
    session: AsyncSession, model: type[Base], rows: Sequence[Row], *, moment: str
) -> None:
    """Insert rows, or update those with the same key; the column `moment` is set to now."""
    for names, alike in _by_shape(rows).items():
        for some in _row_chunks(alike):
            await session.execute(_upsert_statement(table_of(model), names, moment), some)


async def update_rows(session: AsyncSession, model: type[Base], rows: Sequence[Row]) -> None:
    """Update rows by their `id`; each row may change other columns."""
    for names, alike in _by_shape(rows).items():
        if names == ("id",):
            continue
        for some in _row_chunks(alike):
            values = [{f"new_{name}": value for name, value in row.items()} for row in some]
            await session.execute(_update_statement(table_of(model), names), values)


async def delete_rows(
    session: AsyncSession, model: type[Base], condition: ColumnElement[bool], limit: int
) -> int:
    """Delete up to `limit` of the rows that meet a condition; return how many were deleted."""
    table = table_of(model)
    keys = list(table.primary_key)
    batch = select(*keys).where(condition).limit(limit).cte("batch")
    deleted = await session.execute(
        delete(table).where(*(key == batch.c[key.name] for key in keys)).returning(keys[0])
    )
    return len(deleted.all())


@lru_cache(KEPT_STATEMENTS)
def _insert_statement(table: Table) -> Insert:
    """The INSERT that skips rows that already exist."""
    return insert(table).on_conflict_do_nothing()


@lru_cache(KEPT_STATEMENTS)
def _upsert_statement(table: Table, names: Names, moment: str) -> Insert:
    """The upsert of these columns by primary key; `moment` is set to now."""
    statement = insert(table).values({moment: func.now()})
    keys = [column.name for column in table.primary_key]
    changed = {name: statement.excluded[name] for name in (*names, moment) if name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=changed)


@lru_cache(KEPT_STATEMENTS)
def _update_statement(table: Table, names: Names) -> Update:
    """The UPDATE of these columns by `id`."""
    values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names if name != "id"}
    return update(table).where(table.c.id == bindparam("new_id")).values(**values)


def _row_chunks(rows: Sequence[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    """Split the rows of a bulk write into chunks of `ROWS_AT_A_TIME`."""
    for first in range(0, len(rows), ROWS_AT_A_TIME):
        yield rows[first : first + ROWS_AT_A_TIME]


def _by_shape(rows: Iterable[Row]) -> dict[Names, list[dict[str, Any]]]:
    """Rows grouped by their columns, since one statement fills the same columns for all."""
    groups: dict[Names, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(sorted(row)), []).append(dict(row))
    return groups
