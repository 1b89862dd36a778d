"""The sessions that routes declare as parameters.

Each of them ends before the answer is sent, so that a slow client holds no connection. None takes
a connection before its first statement: a request that is refused needs no database. A route that
retries its transaction opens a session for each try itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends

from siteatlas.storage.autocommit import AutocommitSession
from siteatlas.storage.session import (
    AsyncSession,
    get_autocommit_session,
    get_session,
    session_dependency,
)


async def _request_transaction() -> AsyncIterator[AsyncSession]:
    """Dependency of routes: a session in a transaction that lasts as long as the handler."""
    async with get_session() as session, session.begin():
        yield session


async def _request_autocommit_session() -> AsyncIterator[AutocommitSession]:
    """Dependency of routes: an autocommit session, for a single statement."""
    async with get_autocommit_session() as session:
        yield session


# In a transaction that lasts as long as the handler.
ReadSession = Annotated[AsyncSession, Depends(_request_transaction, scope="function")]
# The handler begins the transaction, because what it does after the commit must not come earlier.
WriteSession = Annotated[AsyncSession, Depends(session_dependency, scope="function")]
# For a handler that reads with a single statement.
SingleReadSession = Annotated[
    AutocommitSession, Depends(_request_autocommit_session, scope="function")
]
