"""Documents that have not changed are not read again, and not believed for ever."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web
from sqlalchemy import update

from siteatlas.storage.models import Sitemap, SitemapScan, SitemapUrl
from siteatlas.storage.session import get_background_session
from tests.fixtures.pipeline import index, pages, rows_of, scan_server, urlset
from tests.fixtures.reported import kinds_of_last_scan, scan_to_baseline
from tests.fixtures.site_server import SiteServer

pytestmark = pytest.mark.usefixtures("database")


class Versioned:
    """A document that answers 304 to whoever sends its ETag."""

    def __init__(self, server: SiteServer, text: str) -> None:
        self.server = server
        self.text = text
        self.sent: list[str | None] = []

    def __call__(self, request: web.BaseRequest) -> web.Response:
        self.sent.append(request.headers.get("If-None-Match"))
        if self.sent[-1] == '"1"':
            return web.Response(status=304, headers={"ETag": '"1"'})
        text = self.text.replace("{base}", self.server.base)
        return web.Response(body=text.encode(), headers={"ETag": '"1"'})


def shop(*, versioned: bool) -> SiteServer:
    """An index with one child."""
    server = SiteServer({"/robots.txt": "Sitemap: {base}/i.xml\n"})
    documents = {"/i.xml": index(["{base}/a.xml"]), "/a.xml": urlset(pages("a", 3))}
    for path, text in documents.items():
        server.pages[path] = Versioned(server, text) if versioned else text
    return server


async def document(name: str = "a.xml") -> Sitemap:
    (found,) = [row for row in await rows_of(Sitemap) if row.url.endswith(f"/{name}")]
    return found


async def change(**values: Any) -> None:
    async with get_background_session() as session, session.begin():
        await session.execute(update(Sitemap).values(**values))


@pytest.mark.parametrize(("versioned", "answered_304"), [(True, 1), (False, 0)])
async def test_an_unchanged_site_is_counted_as_it_is_stored(
    versioned: bool, answered_304: int
) -> None:
    async with shop(versioned=versioned) as server:
        first = await scan_server(server)
        before = await document()
        again = await scan_server(server)
    after = await document()
    newest = max(row.scan_id for row in await rows_of(SitemapScan))
    states = [row.state for row in await rows_of(SitemapScan) if row.scan_id == newest]
    assert states == ["unchanged", "unchanged"]
    assert first.result_data is not None
    assert again.result_data is not None
    for name in ("url_count", "sitemap_count", "partial"):
        assert first.result_data[name] == again.result_data[name]
    assert (after.not_modified_count, after.url_count) == (answered_304, 3)
    assert (after.content_hash, after.wire_bytes) == (before.content_hash, before.wire_bytes)
    assert after.last_complete_at is not None
    assert before.last_complete_at is not None
    assert after.last_complete_at > before.last_complete_at


async def test_every_tenth_read_is_a_full_one() -> None:
    async with shop(versioned=True) as server:
        await scan_server(server)
        await change(not_modified_count=8)
        await scan_server(server)
        assert (await document()).not_modified_count == 9
        await scan_server(server)
        child: Any = server.pages["/a.xml"]
    assert child.sent == [None, '"1"', None]
    assert (await document()).not_modified_count == 0


async def test_validators_that_lied_twice_are_not_sent_any_more() -> None:
    async with shop(versioned=True) as server:
        await scan_to_baseline(server)
        child: Any = server.pages["/a.xml"]
        for lies in (1, 2):
            child.text = urlset(pages("a", 3 + lies))
            await change(not_modified_count=9)
            await scan_server(server)
            assert (await document()).validator_lies == lies
            assert await kinds_of_last_scan() == {f"page-{2 + lies}": "added"}
        await scan_server(server)
    assert child.sent == [None, None, None, None]
    assert len(await rows_of(SitemapUrl)) == 5


async def test_the_children_of_an_unchanged_index_are_read() -> None:
    async with shop(versioned=True) as server:
        await scan_to_baseline(server)
        server.pages["/a.xml"] = urlset(pages("a", 4))
        await scan_server(server)
    assert await kinds_of_last_scan() == {"page-3": "added"}
    assert (await document("i.xml")).not_modified_count == 1


async def test_a_document_that_may_be_gone_is_read_in_full() -> None:
    async with shop(versioned=True) as server:
        await scan_server(server)
        await change(vanished_scan_id=1)
        async with get_background_session() as session, session.begin():
            await session.execute(update(Sitemap).values(vanished_at=Sitemap.last_read_at))
        await scan_server(server)
        child: Any = server.pages["/a.xml"]
    assert child.sent == [None, None]
