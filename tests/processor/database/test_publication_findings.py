"""A site through many scans: what the feed says of its findings, undisturbed and killed."""

from __future__ import annotations

import httpx
import pytest

from siteatlas.catalog.site_history import DueSite
from siteatlas.findings.history import Found
from siteatlas.processor import judgement
from siteatlas.processor.judgement import judge_next_site
from tests.catalog.database.runs import killed, scan
from tests.fixtures.changing_site import ChangingSite
from tests.fixtures.crashes import crash_simulation
from tests.fixtures.feed import FeedClient
from tests.fixtures.findings import words
from tests.fixtures.passing_time import let_minutes_pass
from tests.processor.database.history_script import STEPS, Step

pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.slow]

# The places in a scan, as COMMITs, at which its worker is killed; each before and after.
COMMITS = range(1, 6)


async def play(client: httpx.AsyncClient, *, with_kills: bool) -> tuple[list[list[str]], int]:
    """The events of the findings of each scan, and how many workers were killed."""
    told, deaths, shown = [], 0, 0
    async with ChangingSite() as site:
        feed = FeedClient(client, site.host_port)
        for number, step in enumerate(STEPS):
            await let_minutes_pass(step.minutes)
            step.does(site)
            if with_kills and number % 2:
                commit = COMMITS[number // 2 % len(COMMITS)]
                _, died = await killed(site, commit=commit, after=number % 4 == 1)
                deaths += died
            else:
                await scan(site)
            while await judge_next_site():
                pass
            events = await feed.events(after=shown)
            shown = max([shown, *(event["seq"] for event in events)])
            told.append(words(events))
    return told, deaths


def expected(steps: list[Step]) -> list[list[str]]:
    return [sorted(step.says) for step in steps]


async def test_each_rule_that_needs_history_is_met_at_the_right_scan(client: httpx.AsyncClient):
    told, _ = await play(client, with_kills=False)
    assert told == expected(STEPS)


async def test_workers_that_are_killed_change_nothing_of_what_is_told(client: httpx.AsyncClient):
    with crash_simulation():
        told, deaths = await play(client, with_kills=True)
    assert deaths >= 5
    assert told == expected(STEPS)


async def test_what_a_first_scan_shows_is_listed_and_never_told(client: httpx.AsyncClient):
    async with ChangingSite(robots=()) as site:
        site.add("/sitemap.xml", ["/a", "/b"])
        await scan(site)
        while await judge_next_site():
            pass
        listed = await client.get(f"/api/v3/domains/{site.host_port}/findings")
        assert "sitemap-orphan" in {item["code"] for item in listed.json()["items"]}
        site["/sitemap.xml"].put("/c")
        await scan(site)
        while await judge_next_site():
            pass
        assert words(await FeedClient(client, site.host_port).events()) == []


async def test_a_scan_during_the_judgement_of_urls_makes_it_begin_anew(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    async with ChangingSite() as site:
        site.add("/index.xml", children=["/a.xml"])
        site.add("/a.xml", ["/a", "/b"])
        await scan(site)
        judge = judgement._judge
        late: list[DueSite] = []

        async def judge_late(due: DueSite) -> list[Found]:
            found = await judge(due)
            if not late:
                late.append(due)
                site["/a.xml"].put("/b/")
                await scan(site)
            return found

        monkeypatch.setattr(judgement, "_judge", judge_late)
        assert await judge_next_site()
        assert await judge_next_site()
        assert not await judge_next_site()
        listed = await client.get(f"/api/v3/domains/{site.host_port}/findings")
        assert "url-twins" in {item["code"] for item in listed.json()["items"]}
