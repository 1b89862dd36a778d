"""The sites of a demo that keeps serving: two that change and a slow one.

Makes the history that the dashboard shows from the start, by scanning sites again and again while
they change, and keeps it growing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from siteatlas.aio.background import background_task
from siteatlas.cli.commands.demo_tour import Tour
from siteatlas.demo.changing import JOURNAL, MARKET, ChangingSite, keep_changing
from siteatlas.demo.server import DemoSite
from siteatlas.demo.sites import SLOW_PLAN, SitePlan

HISTORY_SCANS = 12
CHANGING_SCAN_SECONDS = 10.0
SLOW_SCAN_SECONDS = 2.0


class LivingSites:
    """The changing sites and the slow one; `sites` are those that are served for `plans`."""

    def __init__(self) -> None:
        self._changing = [ChangingSite(JOURNAL), ChangingSite(MARKET)]

    @property
    def plans(self) -> tuple[SitePlan, ...]:
        """The changing sites, then the slow one."""
        return (*(site.plan for site in self._changing), SLOW_PLAN)

    async def make_history(self, tour: Tour, sites: Sequence[DemoSite]) -> None:
        """Scan the changing sites several times, with a change between two scans."""
        pairs = zip(self._changing, sites, strict=False)
        await asyncio.gather(*(_make_history_of(tour, *pair) for pair in pairs))

    @asynccontextmanager
    async def kept_going(self, tour: Tour, sites: Sequence[DemoSite]) -> AsyncIterator[None]:
        """Go on changing the changing sites and scanning all of them while the block runs."""
        async with AsyncExitStack() as stack:
            for changing in self._changing:
                await stack.enter_async_context(background_task(keep_changing(changing)))
            for site in sites:
                pause = SLOW_SCAN_SECONDS if site is sites[-1] else CHANGING_SCAN_SECONDS
                repeated = tour.scan_repeatedly(site, pause)
                await stack.enter_async_context(background_task(repeated))
            yield


async def _make_history_of(tour: Tour, changing: ChangingSite, site: DemoSite) -> None:
    """Scan one changing site several times."""
    await tour.scan_once(site)
    for _ in range(HISTORY_SCANS - 1):
        changing.step()
        await tour.scan_once(site)
