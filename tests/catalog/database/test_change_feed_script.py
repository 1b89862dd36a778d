"""Thirty scans of a site that changes: the feed has exactly the events of the script."""

from __future__ import annotations

import httpx
import pytest

from siteatlas.storage.models import Job
from tests.catalog.database.performance import Performance, Run
from tests.catalog.database.runs import cancelled_first, killed, scan, stopped
from tests.catalog.database.script import STEPS
from tests.fixtures.changing_site import ChangingSite
from tests.fixtures.crashes import crash_simulation

pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.slow]

HELD = "/b.xml"


async def undisturbed(site: ChangingSite, _number: int) -> tuple[Job, bool]:
    return await scan(site), False


async def killed_every_second_time(site: ChangingSite, number: int) -> tuple[Job, bool]:
    if number % 2 == 0:
        return await scan(site), False
    return await killed(site, commit=1 + number // 2 % 4, after=number % 4 == 1)


async def stopped_every_second_time(site: ChangingSite, number: int) -> tuple[Job, bool]:
    return await stopped(site, HELD) if number % 2 else (await scan(site), False)


async def cancelled_every_second_time(site: ChangingSite, number: int) -> tuple[Job, bool]:
    return await cancelled_first(site, HELD) if number % 2 else (await scan(site), False)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "run",
    [
        undisturbed,
        pytest.param(killed_every_second_time, marks=pytest.mark.full),
        pytest.param(stopped_every_second_time, marks=pytest.mark.full),
        pytest.param(cancelled_every_second_time, marks=pytest.mark.full),
    ],
)
async def test_the_feed_is_the_log_of_the_script(run: Run, client: httpx.AsyncClient):
    async with ChangingSite() as site:
        performance = Performance(site, client, run)
        with crash_simulation():
            for number, step in enumerate(STEPS):
                await performance.play(number, step)
        await performance.check_past_states()
        await performance.check_comparisons()
    assert performance.disturbed >= (0 if run is undisturbed else 10)
