"""A URL moves in a scan that is never published; the next one finds it anywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import httpx
import pytest

from siteatlas.queue.operator_actions import retry
from tests.catalog.database.runs import cancel_dead, finish, scan, start_and_crash
from tests.faults.feed_machine import check_kinds
from tests.fixtures.changing_site import ChangingSite
from tests.fixtures.crashes import crash_simulation
from tests.fixtures.database import transaction
from tests.fixtures.feed import FeedClient, Mirror
from tests.fixtures.queue import job_of

PAGE = "/a0"
LATER = "2026-11-10"


def stay_moved(site: ChangingSite) -> None:
    """Nothing more happens."""


def move_back(site: ChangingSite) -> None:
    site["/b.xml"].drop(PAGE)
    site["/a.xml"].put(PAGE, date=LATER)


def return_too(site: ChangingSite) -> None:
    site["/a.xml"].put(PAGE, date=LATER)


def leave(site: ChangingSite) -> None:
    site["/b.xml"].drop(PAGE)


def move_on(site: ChangingSite) -> None:
    site["/b.xml"].drop(PAGE)
    site["/c.xml"].put(PAGE, date=LATER)


@dataclass(frozen=True)
class Sequel:
    """What happens to the URL after the scan that died, and whether that scan's job is retried."""

    then: Callable[[ChangingSite], None]
    retried: bool = False

    async def run(self, site: ChangingSite, job_id: int) -> None:
        """Change the site and scan it to the end."""
        self.then(site)
        if self.retried and (await job_of(job_id)).status == "cancelled":
            async with transaction() as session:
                await retry(session, job_id)
            await finish(site, job_id)
        else:
            await scan(site)


SEQUELS = [
    *map(Sequel, [stay_moved, move_back, return_too, leave, move_on]),
    Sequel(return_too, retried=True),
    Sequel(move_on, retried=True),
]


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("sequel", SEQUELS, ids=lambda one: f"{one.then.__name__}-{one.retried}")
async def test_the_feed_is_right_wherever_the_url_is_found(
    client: httpx.AsyncClient, sequel: Sequel
):
    with crash_simulation():
        for commit in range(1, 40):
            async with ChangingSite() as site:
                if not await feed_is_right(client, site, commit, sequel):
                    break
    assert commit > 4


async def feed_is_right(
    client: httpx.AsyncClient, site: ChangingSite, commit: int, sequel: Sequel
) -> bool:
    """Whether a scan died after this COMMIT; the events of the next one are checked.

    Before it, a scan died that found another date of the URL.
    """
    site.add("/index.xml", children=["/a.xml", "/b.xml", "/c.xml"])
    for name in "abc":
        site.add(f"/{name}.xml", [f"/{name}{number}" for number in range(5)])
    await scan(site)
    feed = FeedClient(client, site.host_port)
    published = await Mirror.of(feed)
    site["/a.xml"].put(PAGE, date="2026-11-08")
    await die_and_cancel(site, 5)
    site["/a.xml"].drop(PAGE)
    site["/b.xml"].put(PAGE, date="2026-11-09")
    job_id, crashed = await die_and_cancel(site, commit)
    between = await Mirror.of(feed)
    if crashed:
        await sequel.run(site, job_id)
        await check_feed(feed, published, between)
    return crashed


async def die_and_cancel(site: ChangingSite, commit: int) -> tuple[int, bool]:
    """The job of a scan, and whether it died after a COMMIT; if so, the job is cancelled."""
    job_id, crashed = await start_and_crash(site, commit=commit, after=True)
    if (await job_of(job_id)).status == "processing":
        await cancel_dead(site, job_id)
    return job_id, crashed


async def check_feed(feed: FeedClient, published: Mirror, between: Mirror) -> None:
    """Copies kept by events alone equal the listing, and the kinds of events fit."""
    now, events = await Mirror.of(feed), await feed.events()
    # Inside one scan the order of events has no meaning.
    numbered = sorted(enumerate(events), key=lambda pair: (pair[1]["seq"], -pair[0]))
    in_another_order = [event for _, event in numbered]
    for mirror in (published, between):
        for some in (events, in_another_order):
            assert await mirror.replay(some, feed.document) == now.entries
    new = [event for event in events if event["seq"] > between.as_of]
    if between.as_of == published.as_of:
        check_kinds(new, published.entries, now.entries)
