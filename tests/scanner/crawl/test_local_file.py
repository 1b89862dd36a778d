"""Sitemaps in local files, as the events of a scan."""

from __future__ import annotations

import errno
import gzip
import os
import re
import threading
from pathlib import Path

import pytest

from siteatlas.errors import HtmlInstead, InputError, ScanError
from siteatlas.scanner.crawl.local_file import read_local_file
from siteatlas.scanner.events import CandidateJudged, DocumentClosed, EntriesRead, ScanEvent
from siteatlas.scanner.options import ScanOptions
from tests.fixtures.documents import urlset_of

URLSET = (
    "<urlset>" + "".join(f"<url><loc>https://a.example/{n}</loc></url>" for n in range(3))
) + "</urlset>"
INDEX = "<sitemapindex><sitemap><loc>https://a.example/child.xml</loc></sitemap></sitemapindex>"


async def events_of(path: Path, max_urls: int | None = None) -> list[ScanEvent]:
    return [event async for event in read_local_file(path, ScanOptions(max_urls=max_urls))]


def urls_in(events: list[ScanEvent]) -> list[str]:
    return [url for event in events if isinstance(event, EntriesRead) for url in event.columns.urls]


async def test_a_compressed_file_gives_its_urls(tmp_path: Path):
    path = tmp_path / "sitemap.xml.gz"
    path.write_bytes(gzip.compress(URLSET.encode()))
    events = await events_of(path)
    assert urls_in(events) == [f"https://a.example/{n}" for n in range(3)]
    assert isinstance(events[-1], DocumentClosed)
    assert (events[-1].outcome, events[-1].entry_count) == ("complete", 3)


async def test_an_index_lists_its_children(tmp_path: Path):
    path = tmp_path / "index.xml"
    path.write_text(INDEX)
    events = await events_of(path)
    assert urls_in(events) == []
    (judged,) = [event for event in events if isinstance(event, CandidateJudged)]
    assert (judged.url, judged.reason) == ("https://a.example/child.xml", "not_fetched")


async def test_an_index_that_breaks_off_is_cut(tmp_path: Path):
    path = tmp_path / "index.xml"
    path.write_text(INDEX.removesuffix("</sitemapindex>"))
    events = await events_of(path)
    assert isinstance(events[-1], DocumentClosed)
    assert (events[-1].outcome, events[-1].error_code) == ("cut", "truncated")


async def test_a_broken_file_gives_what_it_has(tmp_path: Path):
    path = tmp_path / "sitemap.xml"
    path.write_text(URLSET.removesuffix("</urlset>"))
    events = await events_of(path)
    assert len(urls_in(events)) == 3
    assert isinstance(events[-1], DocumentClosed)
    assert (events[-1].outcome, events[-1].error_code) == ("cut", "truncated")


@pytest.mark.parametrize(
    ("max_urls", "outcome", "code"), [(2, "cut", "url_limit"), (3, "complete", None)]
)
async def test_a_limit_cuts_a_file_that_holds_more(
    tmp_path: Path, max_urls: int, outcome: str, code: str | None
):
    path = tmp_path / "sitemap.xml"
    path.write_text(URLSET)
    events = await events_of(path, max_urls)
    assert len(urls_in(events)) == max_urls
    assert isinstance(events[-1], DocumentClosed)
    assert (events[-1].outcome, events[-1].error_code) == (outcome, code)


async def test_a_web_page_in_a_file_is_not_blamed_on_a_site(tmp_path: Path):
    path = tmp_path / "page.html"
    path.write_text("<!DOCTYPE html><html><head><title>Hello</title></head></html>")
    with pytest.raises(HtmlInstead, match=r"\bfile\b") as refused:
        await events_of(path)
    assert not re.search(r"\bsite\b", refused.value.message)


async def test_a_file_that_is_no_sitemap_is_an_error(tmp_path: Path):
    path = tmp_path / "page.xml"
    path.write_text("<html><body>no</body></html>")
    with pytest.raises(ScanError):
        await events_of(path)


@pytest.mark.parametrize("name", ["missing.xml", ""])
async def test_a_file_that_cannot_be_read_is_an_input_error(tmp_path: Path, name: str):
    problem = errno.EISDIR if not name else errno.ENOENT
    with pytest.raises(InputError, match=os.strerror(problem)):
        await events_of(tmp_path / name)


async def test_a_named_pipe_is_read_as_a_stream(tmp_path: Path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_text(URLSET))
    writer.start()
    assert len(urls_in(await events_of(path))) == 3
    writer.join()


@pytest.mark.parametrize(("look", "found"), [(True, {"duplicate_url": 1}), (False, {})])
async def test_urls_listed_twice_are_noted_where_a_report_is_wanted(
    tmp_path: Path, look: bool, found: dict[str, int]
):
    path = tmp_path / "s.xml"
    path.write_bytes(urlset_of(["https://a.example/1", "https://a.example/1"]))
    options = ScanOptions(find_duplicates=look)
    events = [event async for event in read_local_file(path, options)]
    (closed,) = [event for event in events if isinstance(event, DocumentClosed)]
    assert closed.problems == found
