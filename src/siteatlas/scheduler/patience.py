"""How a loop outlives an outage of the database: wait longer each time, say it once.

A loop that dies would leave a process that looks alive and does nothing, so no error gets past a
round: an outage is waited for, anything else is logged with its trace and the loop goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from siteatlas.errors import DatabaseError
from siteatlas.logs import get_logger

log = get_logger("scheduler")

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0


class Patience:
    """Wraps one round of a loop; remembers whether the database was away in the last one."""

    def __init__(self, loop_name: str) -> None:
        self._loop_name = loop_name
        self._pause = FIRST_PAUSE
        self._away = False

    @asynccontextmanager
    async def round(self) -> AsyncIterator[None]:
        """Run one round; an outage becomes a pause instead of an error."""
        try:
            yield
        except DatabaseError:
            if not self._away:
                log.warning("database_away", loop=self._loop_name)
            self._away = True
            await self._rest()
        except Exception:
            log.exception("round_failed", loop=self._loop_name)
            await self._rest()
        else:
            if self._away:
                log.info("database_back", loop=self._loop_name)
            self._away, self._pause = False, FIRST_PAUSE

    async def _rest(self) -> None:
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
