"""What the tests of this folder share: a PostgreSQL, and a fresh database for each test."""

from __future__ import annotations

from tests.fixtures.database import (
    database,
    database_name,
    database_url,
    postgres_server,
    session,
)

__all__ = ["database", "database_name", "database_url", "postgres_server", "session"]
