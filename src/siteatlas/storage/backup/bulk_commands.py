"""Commands that SQLAlchemy does not support: COPY of whole tables, TRUNCATE and ANALYZE."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from siteatlas.errors import DatabaseError
from siteatlas.storage.copying import copy_time_limit, translated_copy_faults

COPY_SECONDS = 86_400.0
TEXT_FORMAT = "text"
NOT_SUPPORTED = "0A000"


async def copy_out(
    connection: AsyncConnection,
    table: str,
    columns: tuple[str, ...],
    write: Callable[[bytes], Awaitable[None]],
) -> int:
    """Pass the rows of a table to `write`, as COPY gives them; returns their number."""
    driver: Any = (await connection.get_raw_connection()).driver_connection
    with translated_copy_faults(driver):
        async with copy_time_limit(driver, COPY_SECONDS):
            done = await driver.copy_from_table(
                table, columns=columns, output=write, format=TEXT_FORMAT, timeout=COPY_SECONDS
            )
    return _row_count(done)


async def copy_in(
    connection: AsyncConnection, table: str, columns: tuple[str, ...], rows: AsyncIterator[bytes]
) -> int:
    """Send rows to a table in the form in which COPY gave them; returns their number."""
    driver: Any = (await connection.get_raw_connection()).driver_connection
    with translated_copy_faults(driver):
        async with copy_time_limit(driver, COPY_SECONDS):
            done = await driver.copy_to_table(
                table, columns=columns, source=rows, format=TEXT_FORMAT, timeout=COPY_SECONDS
            )
    return _row_count(done)


def _row_count(done: str) -> int:
    """The number of rows in the answer of the server, such as `COPY 42`."""
    return int(done.rpartition(" ")[2])


async def truncate(connection: AsyncConnection, tables: Iterable[str]) -> None:
    """Empty tables; refused if a table that is not among them refers to one of them."""
    try:
        await connection.execute(text(f"TRUNCATE {_listed(connection, tables)}"))
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != NOT_SUPPORTED:
            raise
        raise DatabaseError(
            "A table of another program refers to one of Siteatlas, whose rows can therefore not "
            "be replaced. Restore the backup into another database."
        ) from error


async def analyze(connection: AsyncConnection, tables: Iterable[str]) -> None:
    """Collect statistics, without which the first queries would be planned for empty tables."""
    await connection.execute(text(f"ANALYZE {_listed(connection, tables)}"))


def _listed(connection: AsyncConnection, tables: Iterable[str]) -> str:
    """The names of tables as SQL writes them."""
    return ", ".join(map(connection.dialect.identifier_preparer.quote_identifier, tables))
