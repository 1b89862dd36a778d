"""A direct connection for tests to read the database, bypassing proxies and poolers under test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from siteatlas.storage.engine import parse_database_url
from tests.fixtures.waiting import wait_until

NAME = "tests"


class DatabaseInspector:
    """Reads one database; reconnects after a restart of the server."""

    def __init__(self, url: str) -> None:
        self._url = parse_database_url(url)
        self._connection: Any = None
        self._lock = asyncio.Lock()

    async def connect(self, **options: object) -> Any:
        """A new connection to the same database, for the caller to close."""
        url = self._url
        return await asyncpg.connect(
            host=url.host or url.query.get("host"),
            port=url.port or int(str(url.query.get("port", 5432))),
            user=url.username,
            database=url.database,
            server_settings={"application_name": NAME},
            **options,
        )

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def rows(self, query: str, *values: object) -> list[Any]:
        """All rows of a query."""
        async with self._lock:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self.connect()
            found: list[Any] = await self._connection.fetch(query, *values)
            return found

    async def value(self, query: str, *values: object) -> Any:
        """The first value of a query."""
        rows = await self.rows(query, *values)
        return rows[0][0] if rows else None

    async def job(self, job_id: int) -> Any:
        """One job as it is stored now."""
        return (await self.rows("SELECT * FROM jobs WHERE id = $1", job_id))[0]

    async def wait_for(
        self, query: str, *values: object, expected: object = True, seconds: float = 30
    ) -> None:
        """Wait until a query returns the expected value."""

        async def there() -> bool:
            return bool(await self.value(query, *values) == expected)

        await wait_until(there, seconds=seconds)

    async def wait_for_status(self, job_id: int, status: str, *, seconds: float = 30) -> None:
        """Wait until a job has this status."""
        query = "SELECT status FROM jobs WHERE id = $1"
        await self.wait_for(query, job_id, expected=status, seconds=seconds)

    @asynccontextmanager
    async def holding(self, statement: str, *values: object) -> AsyncIterator[Any]:
        """A transaction that holds the locks of a statement during the block, then rolls back."""
        connection = await self.connect()
        try:
            await connection.execute("BEGIN")
            await connection.execute(statement, *values)
            yield connection
        finally:
            await connection.close(timeout=5)

    async def wait_for_blocked(self, *, seconds: float = 30) -> None:
        """Wait until a session of this database waits for a lock."""
        query = """
            SELECT EXISTS (SELECT FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock')
        """
        await self.wait_for(query, seconds=seconds)


@asynccontextmanager
async def open_inspector(url: str) -> AsyncIterator[DatabaseInspector]:
    """An inspector that is closed after the block."""
    inspector = DatabaseInspector(url)
    try:
        yield inspector
    finally:
        await inspector.close()
