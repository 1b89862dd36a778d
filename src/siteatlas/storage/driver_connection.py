"""The connection of asyncpg, with fewer round trips: limits sent with BEGIN, known types.

The engine creates its connections with this class; everything else uses sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

# Smaller ids are assigned by hand in the sources of PostgreSQL, the same in every version.
FIRST_UNSTABLE_TYPE = 10_000

_built_in_types: dict[frozenset[int], Sequence[Any]] = {}


@dataclass(frozen=True, slots=True)
class NoStatement:
    """Stands for the query of asyncpg that was not sent.

    Its name tells asyncpg that the statement it had prepared before is still there.
    """

    name: str = "none"


class DriverConnection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """A connection that saves round trips.

    It sends the limits of a transaction together with its BEGIN: a separate statement would cost
    two more round trips, because it is not kept prepared. And it asks for the description of
    built-in types, such as arrays of numbers, once per process instead of once per connection:
    that query takes the server longer than most of ours.
    """

    next_limits = ""

    async def execute(self, query: str, *args: Any, **options: Any) -> Any:
        """Run a command. The transactions of asyncpg, and so of SQLAlchemy, begin with one."""
        if self.next_limits and query.startswith("BEGIN"):
            query, self.next_limits = query + self.next_limits, ""
        return await super().execute(query, *args, **options)

    async def _introspect_types(
        self,
        typeoids: Iterable[int],
        timeout: float | None,  # noqa: ASYNC109 - the signature of asyncpg
    ) -> tuple[Sequence[Any], Any]:
        """The description of types that this connection has not used yet.

        Overrides a private method: if asyncpg renames it, every connection asks again.
        """
        wanted = frozenset(typeoids)
        if wanted in _built_in_types:
            return _built_in_types[wanted], NoStatement()
        found, statement = await super()._introspect_types(wanted, timeout)
        if max(wanted) < FIRST_UNSTABLE_TYPE:
            _built_in_types[wanted] = found
        return found, statement
