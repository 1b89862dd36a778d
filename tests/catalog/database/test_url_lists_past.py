"""The URLs of a site at a past time or number: what can be requested, and what is refused."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.url_lists import find_past_number
from siteatlas.errors import PastStateUnavailable
from siteatlas.storage.models import FeedHead, Scan
from tests.catalog.database.runs import cancel_dead, scan, start_and_crash
from tests.fixtures.changes import add_old_scans, add_published_scan
from tests.fixtures.changing_site import ChangingSite
from tests.fixtures.crashes import crash_simulation
from tests.fixtures.database import scans_read, transaction
from tests.fixtures.feed import FeedClient, Listing
from tests.fixtures.passing_time import let_minutes_pass
from tests.fixtures.pipeline import scan_server
from tests.fixtures.queue import job_of
from tests.fixtures.records import add_domain

pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.slow]


async def three_scans(site: ChangingSite) -> list[tuple[int, datetime]]:
    """A page comes in each scan, and another leaves; the numbers and times of the scans."""
    site.add("/index.xml", children=["/a.xml"])
    site.add("/a.xml", ["/old/1", "/old/2", "/stays"])
    await scan_server(site)
    for number in (1, 2):
        site["/a.xml"].drop(f"/old/{number}")
        site["/a.xml"].put(f"/new/{number}")
        site["/a.xml"].put("/stays", date=f"2026-11-0{number + 1}")
        await scan_server(site)
    async with transaction() as session:
        statement = select(Scan.published_seq, Scan.finished_at).order_by(Scan.id)
        rows = (await session.execute(statement)).all()
    return [(row.published_seq or 0, row.finished_at or datetime.now(UTC)) for row in rows]


async def paths(client: httpx.AsyncClient, site: ChangingSite, **query: Any) -> list[str]:
    answer = await client.get(f"/api/v3/domains/{site.host_port}/urls", params=query)
    assert answer.status_code == 200, answer.text
    return sorted(item["url"].removeprefix(site.base) for item in answer.json()["items"])


async def test_a_time_means_the_last_scan_before_it(client: httpx.AsyncClient):
    async with ChangingSite() as site:
        scans = await three_scans(site)
        listed = [
            ["/old/1", "/old/2", "/stays"],
            ["/new/1", "/old/2", "/stays"],
            ["/new/1", "/new/2", "/stays"],
        ]
        for (_, finished_at), expected in zip(scans, listed, strict=True):
            assert await paths(client, site, at=finished_at.isoformat()) == expected
        between = scans[1][1] - timedelta(microseconds=1)
        assert await paths(client, site, at=between.isoformat()) == listed[0]


async def test_filters_look_at_the_values_of_that_time(client: httpx.AsyncClient):
    async with ChangingSite() as site:
        (first, _), (second, _), _ = await three_scans(site)
        assert await paths(client, site, at_seq=first, contains="/old/2") == ["/old/2"]
        changed = {"lastmod_from": "2026-11-02", "lastmod_to": "2026-11-03"}
        assert await paths(client, site, at_seq=first, **changed) == []
        assert await paths(client, site, at_seq=second, **changed) == ["/stays"]
        assert await paths(client, site, at_seq=second, url=f"{site.base}/old/1") == []


async def test_an_export_has_the_state_of_that_time(client: httpx.AsyncClient):
    async with ChangingSite() as site:
        (first, _), *_ = await three_scans(site)
        route = f"/api/v3/domains/{site.host_port}/export"
        answer = await client.get(route, params={"at_seq": first})
        assert answer.headers["siteatlas-as-of-seq"] == str(first)
        rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
        found = sorted(row["url"].removeprefix(site.base) for row in rows)
        assert found == ["/old/1", "/old/2", "/stays"]
        assert {row["lastmod"][:10] for row in rows} == {"2026-11-01"}


@pytest.mark.parametrize("route", ["urls", "export"])
async def test_what_is_not_known_is_refused(client: httpx.AsyncClient, route: str):
    async with ChangingSite() as site:
        (first, at), (second, _), (last, _) = await three_scans(site)
        address = f"/api/v3/domains/{site.host_port}/{route}"

        async def refused(**query: Any) -> tuple[int, str, int | None]:
            answer = await client.get(address, params=query)
            body = answer.json()
            is_beyond = query.get("at_seq") == last + 1
            assert (f"only reached number {last}." in body["detail"]) is is_beyond
            return answer.status_code, body["code"], body.get("earliest_seq")

        unknown = (410, "past_state_unavailable", first)
        assert await refused(at_seq=first - 1) == unknown
        assert await refused(at=(at - timedelta(hours=1)).isoformat()) == unknown
        assert await refused(at_seq=last + 1) == unknown
        future = datetime.now(UTC) + timedelta(hours=1)
        for query in (
            {"at": future.isoformat()},
            {"at": at.isoformat(), "at_seq": first},
            {"at_seq": first, "state": "all"},
        ):
            assert (await refused(**query))[:2] == (422, "input_invalid")
        async with transaction() as session:
            await session.execute(update(FeedHead).values(retained_from=second))
        assert await refused(at_seq=first) == (410, "past_state_unavailable", second)


async def test_all_sites_have_no_past(client: httpx.AsyncClient):
    answer = await client.get("/api/v3/export", params={"at_seq": 1})
    assert (answer.status_code, answer.json()["code"]) == (422, "input_invalid")


async def test_a_later_page_has_the_state_of_the_first_one(client: httpx.AsyncClient):
    async with ChangingSite() as site:
        (_, at), *_ = await three_scans(site)
        route = f"/api/v3/domains/{site.host_port}/urls"
        query: dict[str, Any] = {"at": (at - timedelta(minutes=60)).isoformat(), "limit": 2}
        await let_minutes_pass(120)
        first = (await client.get(route, params=query)).json()
        await add_scan_of_another_site(at - timedelta(minutes=90))
        later = await client.get(route, params=query | {"cursor": first["next_cursor"]})
        assert later.status_code == 200, later.text
        listed = [item["url"] for item in first["items"] + later.json()["items"]]
        assert len(set(listed)) == 3


async def add_scan_of_another_site(finished_at: datetime) -> None:
    """A scan that is published now, and ended at a time."""
    async with transaction() as session:
        await add_published_scan(session, await add_domain(session), finished_at=finished_at)


@pytest.mark.parametrize("cursor", ["W10", "WyJhIl0"])
async def test_a_cursor_of_something_else_is_refused(client: httpx.AsyncClient, cursor: str):
    async with ChangingSite() as site:
        (first, _), *_ = await three_scans(site)
        route = f"/api/v3/domains/{site.host_port}/urls"
        page = (await client.get(route, params={"at_seq": first, "limit": 1})).json()
        for number, wrong in ((first, cursor), (first + 1, str(page["next_cursor"]))):
            answer = await client.get(route, params={"at_seq": number, "cursor": wrong})
            assert (answer.status_code, answer.json()["code"]) == (400, "cursor_invalid")


async def test_a_time_long_ago_is_refused_without_reading_old_scans(session: AsyncSession):
    await add_old_scans(session, 3_000, ago=timedelta(days=3))
    domain = await add_domain(session, baseline_scan_id=1)
    await session.execute(update(FeedHead).values(retained_from=FeedHead.seq))
    await add_published_scan(session, domain, finished_at=func.now())
    before = await scans_read(session)
    with pytest.raises(PastStateUnavailable):
        await find_past_number(session, domain.id, datetime(2000, 1, 1, tzinfo=UTC))
    assert await scans_read(session) - before < 10


def move(site: ChangingSite, page: str, start: str, end: str, **date: str) -> None:
    """List a page in another document."""
    site[start].drop(page)
    site[end].put(page, **date)


@pytest.mark.full
async def test_a_scan_that_is_not_published_leaves_past_states_as_they_were(
    client: httpx.AsyncClient,
):
    with crash_simulation():
        for commit in range(1, 40):
            async with ChangingSite() as site:
                if not await past_stays_though_scans_die(client, site, commit):
                    break
    assert commit > 4


async def past_stays_though_scans_die(
    client: httpx.AsyncClient, site: ChangingSite, commit: int
) -> bool:
    """A scan dies after a COMMIT and is cancelled, then one that finds all as it was."""
    site.add("/index.xml", children=["/a.xml", "/b.xml"])
    site.add("/a.xml", [f"/a{number}" for number in range(5)])
    site.add("/b.xml", [f"/b{number}" for number in range(5)])
    await scan(site)
    feed = FeedClient(client, site.host_port)
    before = await feed.listing()
    move(site, "/a0", "/a.xml", "/b.xml", date="2026-11-09")
    crashed = await dies_with_past(site, feed, before, commit)
    if crashed:
        move(site, "/a0", "/b.xml", "/a.xml", date="2026-11-10")
        await dies_with_past(site, feed, before, commit)
    return crashed


async def dies_with_past(
    site: ChangingSite, feed: FeedClient, before: tuple[int, Listing], commit: int
) -> bool:
    """Whether a scan died after a COMMIT; what was listed before is known all the time."""
    job_id, crashed = await start_and_crash(site, commit=commit, after=True)
    assert await feed.past_listing(before[0]) == before, f"died after commit {commit}"
    if crashed and (await job_of(job_id)).status == "processing":
        await cancel_dead(site, job_id)
        assert await feed.past_listing(before[0]) == before, f"cancelled after commit {commit}"
    return crashed


async def test_two_scans_are_compared(client: httpx.AsyncClient):
    async with ChangingSite() as site:
        await three_scans(site)
        async with transaction() as session:
            scans = list((await session.scalars(select(Scan.id).order_by(Scan.id))).all())
        address = f"/api/v3/domains/{site.host_port}/compare"

        async def compared(**query: Any) -> tuple[int, Any]:
            answer = await client.get(address, params=query)
            return answer.status_code, answer.json()

        status, page = await compared(**{"from": scans[0], "to": scans[2]})
        found = {(item["kind"], item["url"].removeprefix(site.base)) for item in page["items"]}
        assert status == 200
        assert found == {
            ("added", "/new/1"),
            ("added", "/new/2"),
            ("removed", "/old/1"),
            ("removed", "/old/2"),
            ("changed", "/stays"),
        }
        assert (await compared(**{"from": scans[1], "to": scans[1]}))[1]["items"] == []
        pages: list[Any] = []
        cursor: dict[str, str] = {}
        while True:
            _, page = await compared(**{"from": scans[0], "to": scans[2], "limit": 2}, **cursor)
            pages += page["items"]
            if page["next_cursor"] is None:
                break
            cursor = {"cursor": page["next_cursor"]}
        assert len({item["url"] for item in pages}) == len(pages) == 5
        unknown = await compared(**{"from": scans[0], "to": scans[2] + 1})
        assert (unknown[0], unknown[1]["code"]) == (404, "scan_not_found")
        assert (await compared(**{"from": scans[2], "to": scans[0]}))[0] == 422
        assert (await compared(**{"from": scans[0]}))[0] == 422
