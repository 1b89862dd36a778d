"""Many rows in one go: one statement, sent once, with the values of each row behind it.

Unlike a statement with all values in it, this has no limit on the number of rows. Rows must not
hold SQL expressions; what is the same for all goes into `constants`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Table, bindparam, update
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.storage.models import Base

Row = Mapping[str, Any]


def table_of(model: type[Base]) -> Table:
    """The table of a model; as an ORM entity it would be flushed row by row."""
    return Base.metadata.tables[model.__tablename__]


async def insert_rows(
    session: AsyncSession,
    model: type[Base],
    rows: Sequence[Row],
    constants: Row | None = None,
) -> None:
    """Insert rows; one that is there already stays as it is."""
    statement = insert(table_of(model)).values(**(constants or {})).on_conflict_do_nothing()
    await _each_shape(session, statement, rows)


async def replace_rows(
    session: AsyncSession, model: type[Base], rows: Sequence[Row], constants: Row | None = None
) -> None:
    """Insert rows, or bring those with the same key up to date."""
    table = table_of(model)
    keys = [column.name for column in table.primary_key]
    for alike in _by_shape(rows):
        statement = insert(table).values(**(constants or {}))
        names = [*alike[0], *(constants or {})]
        changed = {name: statement.excluded[name] for name in names if name not in keys}
        await session.execute(
            statement.on_conflict_do_update(index_elements=keys, set_=changed), alike
        )


async def update_rows(session: AsyncSession, model: type[Base], rows: Sequence[Row]) -> None:
    """Update rows by their `id`; each says which columns it changes."""
    table = table_of(model)
    for alike in _by_shape(rows):
        values: dict[str, Any] = {
            name: bindparam(f"new_{name}") for name in alike[0] if name != "id"
        }
        if not values:
            continue
        statement = update(table).where(table.c.id == bindparam("the_id")).values(**values)
        await session.execute(
            statement,
            [{"the_id" if k == "id" else f"new_{k}": v for k, v in row.items()} for row in alike],
        )


async def _each_shape(session: AsyncSession, statement: Insert, rows: Iterable[Row]) -> None:
    for alike in _by_shape(rows):
        await session.execute(statement, alike)


def _by_shape(rows: Iterable[Row]) -> list[list[dict[str, Any]]]:
    """Rows grouped by the columns they fill, since one statement fills the same ones for all."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(sorted(row)), []).append(dict(row))
    return list(groups.values())
