"""What one read of a document writes: rows, their changes, and marks of entries that are missing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web
from sqlalchemy import select, update

from siteatlas.net.egress import EgressPolicy
from siteatlas.processor.processing import Processor
from siteatlas.processor.steps import JobActivity
from siteatlas.storage.models import (
    FeedEvent,
    Scan,
    Sitemap,
    SitemapLink,
    SitemapScan,
    SitemapUrl,
    UrlChange,
)
from siteatlas.storage.session import get_background_session
from tests.fixtures import documents
from tests.fixtures.pipeline import index, rows_of, scan_server, settings_for, submit_server
from tests.fixtures.queue import let_lease_expire, take_one
from tests.fixtures.reported import changes_of_last_scan, kinds_of_last_scan, scan_to_baseline
from tests.fixtures.site_server import SiteServer
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.usefixtures("database")

ROBOTS = "Sitemap: {base}/a.xml\n"


def entry(page: str, lastmod: str | None = None, **values: object) -> str:
    parts = {"lastmod": lastmod} | values
    inner = "".join(f"<{key}>{value}</{key}>" for key, value in parts.items() if value is not None)
    return f"<url><loc>{{base}}/{page}</loc>{inner}</url>"


def listing(*entries: str) -> str:
    return documents.urlset("".join(entries)).decode()


def site(*entries: str) -> SiteServer:
    return SiteServer({"/robots.txt": ROBOTS, "/a.xml": listing(*entries)})


def partly_read_site(*entries: str) -> SiteServer:
    """A site with a document that cannot be read, so that no scan proves a removal."""
    server = site(*entries)
    server.pages["/robots.txt"] = ROBOTS + "Sitemap: {base}/down.xml\n"
    server.pages["/down.xml"] = lambda _: web.Response(status=500)
    return server


async def read_again(server: SiteServer, *entries: str) -> dict[str, str]:
    """Replace the document, scan, and give the kinds of changes by page."""
    server.pages["/a.xml"] = listing(*entries)
    await scan_server(server)
    return await kinds_of_last_scan()


async def stored() -> dict[str, SitemapUrl]:
    return {row.url.rsplit("/", 1)[1]: row for row in await rows_of(SitemapUrl)}


async def document() -> Sitemap:
    (found,) = [row for row in await rows_of(Sitemap) if row.url.endswith("/a.xml")]
    return found


async def change(table: type[Any], **values: object) -> None:
    async with get_background_session() as session, session.begin():
        await session.execute(update(table).values(**values))


async def missing() -> set[str]:
    return {page for page, row in (await stored()).items() if row.missing_scan_id is not None}


def numbered(pages: Iterable[int], lastmod: str) -> list[str]:
    return [entry(f"p{page}", lastmod) for page in pages]


async def test_a_site_without_a_baseline_has_no_changes() -> None:
    async with partly_read_site(entry("a"), entry("b")) as server:
        await scan_server(server)
        assert await read_again(server, entry("b", priority=0.5), entry("c")) == {}
    assert await missing() == {"a"}
    assert await rows_of(UrlChange) == []


async def test_new_and_changed_entries_are_recorded_with_their_whole_state() -> None:
    async with site(entry("a", "2026-01-01"), entry("b", priority=0.1), entry("c")) as server:
        await scan_to_baseline(server)
        before = await document()
        kinds = await read_again(
            server,
            entry("a", "2026-01-02T10:00:00Z"),
            entry("b", priority=0.2),
            entry("d"),
            entry("c"),
        )
    assert kinds == {"a": "changed", "b": "changed", "d": "added"}
    changes = await changes_of_last_scan()
    assert changes["a"].before == {"lastmod": "2026-01-01T00:00:00.000000+00:00"}
    assert changes["a"].after == {"lastmod": "2026-01-02T10:00:00.000000+00:00"}
    assert (changes["b"].before, changes["b"].after) == ({"priority": 0.1}, {"priority": 0.2})
    assert (changes["d"].before, changes["d"].after) == (None, {})
    after = await document()
    assert before.last_complete_at is not None
    for one in changes.values():
        assert one.not_before == before.last_complete_at
        assert one.not_after is not None
        assert after.last_complete_at is not None
        assert before.last_complete_at < one.not_after <= after.last_complete_at


async def test_a_document_that_is_new_to_a_site_with_a_baseline_is_not_silent() -> None:
    async with site(entry("a")) as server:
        await scan_to_baseline(server)
        server.pages["/robots.txt"] = ROBOTS + "Sitemap: {base}/b.xml\n"
        server.pages["/b.xml"] = listing(entry("b", changefreq="daily"))
        await scan_server(server)
    (change,) = (await changes_of_last_scan()).values()
    assert (change.kind, change.after, change.not_before) == (
        "added",
        {"changefreq": "daily"},
        None,
    )


async def test_an_entry_that_is_not_listed_is_missing_until_it_is_seen_again() -> None:
    async with partly_read_site(entry("a"), entry("b"), entry("c")) as server:
        await scan_to_baseline(server)
        assert await read_again(server, entry("a")) == {}
        assert await missing() == {"b", "c"}
        first = {row.missing_scan_id for row in await rows_of(SitemapUrl)} - {None}
        assert ((await document()).url_count, (await document()).missing_count) == (3, 2)
        assert await read_again(server, entry("a", priority=0.3), entry("b")) == {"a": "changed"}
    assert await missing() == {"c"}
    assert {row.missing_scan_id for row in await rows_of(SitemapUrl)} - {None} == first
    assert ((await document()).url_count, (await document()).missing_count) == (3, 1)


async def test_a_removed_entry_that_is_seen_again_is_back() -> None:
    async with site(entry("a"), entry("b", priority=0.5)) as server:
        await scan_to_baseline(server)
        await read_again(server, entry("a"))
        async with get_background_session() as session, session.begin():
            await session.execute(
                update(SitemapUrl)
                .where(SitemapUrl.missing_scan_id.is_not(None))
                .values(removed_at=select(Scan.started_at).limit(1).scalar_subquery())
            )
            await session.execute(update(Sitemap).values(url_count=1, missing_count=0))
        kinds = await read_again(server, entry("a"), entry("b", priority=0.6))
    assert kinds == {"b": "back"}
    (change,) = (await changes_of_last_scan()).values()
    assert (change.before, change.after) == (None, {"priority": 0.6})
    row = (await stored())["b"]
    assert (row.missing_scan_id, row.removed_at) == (None, None)
    assert row.priority == pytest.approx(0.6)
    assert (await document()).url_count == 2


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param("<urlset><url><loc>{base}/a</loc></url><url>", id="cut"),
        pytest.param("<html><body>Sorry</body></html>", id="unread"),
    ],
)
async def test_a_document_that_was_not_read_to_its_end_makes_nothing_missing(broken: str) -> None:
    async with site(entry("a"), entry("b")) as server:
        await scan_to_baseline(server)
        server.pages["/a.xml"] = broken
        await scan_server(server)
    assert await missing() == set()
    assert await rows_of(UrlChange) == []
    assert ((await document()).url_count, (await document()).missing_count) == (2, 0)


async def test_an_entry_that_leaves_a_window_has_expired() -> None:
    def feed(*pages: str) -> str:
        items = "".join(f"<item><link>{{base}}/{page}</link></item>" for page in pages)
        return f"<rss version='2.0'><channel><title>t</title>{items}</channel></rss>"

    async with SiteServer({"/robots.txt": ROBOTS, "/a.xml": feed("a", "b")}) as server:
        await scan_to_baseline(server)
        server.pages["/a.xml"] = feed("b", "c")
        await scan_server(server)
        assert await kinds_of_last_scan() == {"a": "expired", "c": "added"}
        assert (await changes_of_last_scan())["a"].after is None
        assert (await stored())["a"].removed_at is not None
        assert ((await document()).url_count, (await document()).is_window) == (2, True)
        server.pages["/a.xml"] = feed("a", "c")
        await scan_server(server)
    assert await kinds_of_last_scan() == {"a": "back", "b": "expired"}
    assert await missing() == set()


async def test_a_document_read_by_another_version_is_brought_up_to_date_silently() -> None:
    async with partly_read_site(entry("a"), entry("b")) as server:
        await scan_to_baseline(server)
        await change(Sitemap, read_version=0, etag=None, last_modified=None, content_hash=None)
        await change(SitemapUrl, fingerprint=7)
        assert await read_again(server, entry("a"), entry("c", priority=0.5)) == {}
        assert {page for page, row in (await stored()).items() if row.removed_at} == {"b"}
        found, (scan, *_) = await document(), sorted(await rows_of(Scan), key=lambda one: -one.id)
        assert (found.read_version, found.url_count, found.baseline_scan_id) == (1, 2, scan.id)
        assert await read_again(server, entry("a"), entry("d")) == {"d": "added"}
    assert await missing() == {"c"}


async def test_dates_that_always_move_alone_are_distrusted_and_trusted_again() -> None:
    pages = range(25)
    async with site(*numbered(pages, "2026-01-01")) as server:
        await scan_to_baseline(server)
        assert len(await read_again(server, *numbered(pages, "2026-01-02"))) == 25
        assert (await document()).lastmod_trusted
        assert len(await read_again(server, *numbered(pages, "2026-01-03"))) == 25
        assert not (await document()).lastmod_trusted
        (event,) = [row for row in await rows_of(FeedEvent) if row.kind == "lastmod_distrusted"]
        assert event.sitemap_id == (await document()).id
        assert await read_again(server, *numbered(pages, "2026-01-04")) == {}
        # The generator is mended: from now on, dates move with something else only.
        mended = numbered(range(24), "2026-01-04")
        for priority in (0.1, 0.2):
            assert not (await document()).lastmod_trusted
            last = entry("p24", "2026-01-05", priority=priority)
            assert await read_again(server, *mended, last) == {"p24": "changed"}
        assert (await document()).lastmod_trusted
        assert len(await read_again(server, *mended, entry("p24"))) == 25


async def test_dates_of_an_unchanged_document_are_trusted_again() -> None:
    async with site(entry("a")) as server:
        await scan_to_baseline(server)
        await change(Sitemap, lastmod_trusted=False)
        await scan_server(server)
        assert not (await document()).lastmod_trusted
        await scan_server(server)
    assert ((await document()).lastmod_trusted, (await document()).lastmod_streak) == (True, 0)


async def test_of_several_entries_of_a_url_the_latest_counts_in_any_order() -> None:
    old, new = entry("a", "2026-01-01", priority=0.9), entry("a", "2026-01-02", priority=0.1)
    async with site(new, entry("b"), old) as server:
        await scan_to_baseline(server)
        assert (await stored())["a"].priority == pytest.approx(0.1)
        assert await read_again(server, old, entry("b"), new) == {}
        assert await read_again(server, entry("b", priority=0.5), old, new) == {"b": "changed"}
        newest = entry("a", "2026-01-03")
        assert await read_again(server, old, newest, new, entry("b")) == {
            "a": "changed",
            "b": "changed",
        }
        assert await read_again(server, old, entry("b")) == {"a": "changed"}
    assert (await stored())["a"].priority == pytest.approx(0.9)


async def test_the_latest_of_several_new_entries_is_stored() -> None:
    dates = ["2026-01-01", "2026-01-03", "2026-01-02"]
    async with site(entry("z")) as server:
        await scan_to_baseline(server)
        kinds = await read_again(server, *(entry("a", date) for date in dates), entry("z"))
    assert kinds == {"a": "added"}
    change = (await changes_of_last_scan())["a"]
    assert change.before is None
    assert change.after == {"lastmod": "2026-01-03T00:00:00.000000+00:00"}


async def test_a_complete_read_of_an_index_replaces_its_links() -> None:
    pages = {
        "/robots.txt": "Sitemap: {base}/i.xml\n",
        "/i.xml": index(["{base}/a.xml", "{base}/b.xml"]),
        "/a.xml": listing(entry("a")),
        "/b.xml": listing(entry("b")),
    }
    async with SiteServer(pages) as server:
        await scan_server(server)
        server.pages["/i.xml"] = "<sitemapindex><sitemap><loc>{base}/b.xml</loc></sitemap><sitemap>"
        await scan_server(server)
        assert len(await rows_of(SitemapLink)) == 2
        server.pages["/i.xml"] = index(["{base}/b.xml"])
        await scan_server(server)
    names = {row.id: row.url.rsplit("/", 1)[1] for row in await rows_of(Sitemap)}
    assert [names[link.child_id] for link in await rows_of(SitemapLink)] == ["b.xml"]


async def test_validators_are_forgotten_with_the_first_row_of_another_version() -> None:
    async with site(entry("a")) as server:
        await scan_to_baseline(server)
        assert (await document()).content_hash is not None
        server.pages["/a.xml"] = "<urlset><url><loc>{base}/b</loc></url><url>"
        await scan_server(server)
    found = await document()
    assert (found.etag, found.last_modified, found.content_hash) == (None, None, None)
    assert set(await stored()) == {"a", "b"}


async def test_a_change_of_an_earlier_attempt_keeps_its_first_state() -> None:
    hold = asyncio.Event()
    hold.set()

    async def slow(_request: object) -> str:
        await hold.wait()
        return listing(entry("z"))

    async with site(entry("a", priority=0.1)) as server:
        server.pages["/robots.txt"] = ROBOTS + "Sitemap: {base}/slow.xml\n"
        server.pages["/slow.xml"] = slow
        await scan_to_baseline(server)
        hold.clear()
        server.pages["/a.xml"] = listing(entry("a", priority=0.2), entry("b", priority=0.2))
        submitted = await submit_server(server)
        settings = settings_for(server)
        processor = Processor(settings, EgressPolicy.from_text(settings.egress_allow))
        attempt = asyncio.create_task(processor.run(await take_one(), JobActivity()))
        await wait_until(lambda: server.paths.count("/slow.xml") == 2)
        await asyncio.sleep(0.2)
        attempt.cancel()
        with suppress(asyncio.CancelledError):
            await attempt
        assert await kinds_of_last_scan() == {"a": "changed", "b": "added"}
        # As if the attempt had been killed before it reached the end of the document.
        await change(SitemapScan, state="pending")
        await let_lease_expire(submitted.id)
        hold.set()
        assert await read_again(server, entry("a", priority=0.3), entry("b", priority=0.3)) == {
            "a": "changed",
            "b": "added",
        }
    changes = await changes_of_last_scan()
    assert (changes["a"].before, changes["a"].after) == ({"priority": 0.1}, {"priority": 0.3})
    assert (changes["b"].before, changes["b"].after) == (None, {"priority": 0.3})
