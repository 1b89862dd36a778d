"""Engines: connection pools that work behind a transaction pooler.

Owns the driver arguments and the checks of pooled connections. `session.py` owns sessions, and
decides how many connections each kind of work may use.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import asyncpg
from asyncpg import InterfaceError, PostgresError
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from siteatlas.errors import ConfigurationError
from siteatlas.storage.database_url import parse_database_url, tls_address
from siteatlas.storage.driver_connection import DriverConnection

APPLICATION_NAME = "siteatlas"
# Of backup and restore, whose statements may wait for their client.
BACKUP_NAME = "siteatlas-backup"
POOL_RECYCLE_SECONDS = 300
# Connections that were idle this long are checked before use: something between here and the
# server may have dropped them. An idle worker uses its connection every five seconds.
CHECK_AFTER_SECONDS = 10
RETURNED_AT = "returned_at"
CONNECT_SECONDS = 10
COMMAND_SECONDS = 60
POOL_WAIT_SECONDS = 10


def create_engine(
    url: str,
    *,
    pool_size: int,
    pool_overflow: int,
    behind_pooler: bool,
    standing_limits: Mapping[str, str],
) -> AsyncEngine:
    """An engine whose connections have the `standing_limits`; none can be set behind a pooler.

    `no_prepare` is required by the standard that this engine follows; neither driver reads it.
    """
    connect_args: dict[str, Any] = {
        "timeout": CONNECT_SECONDS,
        "command_timeout": COMMAND_SECONDS,
        "server_settings": {"application_name": APPLICATION_NAME, **standing_limits},
        "connection_class": DriverConnection,
    }
    if tls := tls_address(url):
        connect_args["dsn"] = tls
    if behind_pooler:
        connect_args |= {"statement_cache_size": 0, "prepared_statement_cache_size": 0}
    try:
        engine = create_async_engine(
            parse_database_url(url),
            pool_size=pool_size,
            max_overflow=pool_overflow,
            pool_timeout=POOL_WAIT_SECONDS,
            pool_recycle=POOL_RECYCLE_SECONDS,
            pool_use_lifo=True,
            execution_options={"no_prepare": True},
            hide_parameters=True,
            connect_args=connect_args,
        )
    except ArgumentError as error:
        raise ConfigurationError(f"DATABASE_URL is invalid: {error}.") from error
    event.listen(engine.sync_engine, "checkin", _drop_unused_limits)
    if behind_pooler:
        event.listen(engine.sync_engine, "checkin", _remember_return)
        event.listen(engine.sync_engine, "checkout", _require_working_connection)
    return engine


def _drop_unused_limits(connection: Any, _record: ConnectionPoolEntry) -> None:
    """Forget the limits of a transaction without statements: they are not for the next one."""
    if connection is not None:
        connection.driver_connection.next_limits = ""


def _remember_return(_connection: Any, record: ConnectionPoolEntry) -> None:
    """Note when a connection came back to the pool."""
    record.info[RETURNED_AT] = time.monotonic()


def _require_working_connection(
    connection: Any, record: ConnectionPoolEntry, _proxy: PoolProxiedConnection
) -> None:
    """Make the pool replace a connection that is closed, or that was unused and does not answer.

    A server or a pooler that shuts down closes its connections, which shows without a query. The
    check of the pool itself (`pool_pre_ping`) takes three statements before each transaction.
    """
    returned_at = record.info.get(RETURNED_AT)
    if returned_at is None:
        return
    is_unused = time.monotonic() - returned_at > CHECK_AFTER_SECONDS
    if connection.driver_connection.is_closed() or (is_unused and not _answers(connection)):
        raise InvalidatePoolError


def _answers(connection: Any) -> bool:
    """Whether a connection answers a query: a simple one, which needs no transaction."""
    try:
        connection.run_async(_run_check)
    except (PostgresError, InterfaceError, OSError):
        return False
    return True


async def _run_check(connection: asyncpg.Connection) -> None:
    """Run the usual statement that checks a connection; asyncpg cannot run an empty one."""
    await connection.execute("SELECT 1")
