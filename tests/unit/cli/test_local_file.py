"""Sitemaps in local files, as the events of a scan."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import pytest

from siteatlas.cli.local_file import local_path, read_local_file
from siteatlas.errors import InputError, ScanError
from siteatlas.scanner.events import DocumentClosed, EntriesRead, ScanEvent

URLSET = (
    "<urlset>" + "".join(f"<url><loc>https://a.example/{n}</loc></url>" for n in range(3))
) + "</urlset>"
INDEX = "<sitemapindex><sitemap><loc>https://a.example/child.xml</loc></sitemap></sitemapindex>"


async def events_of(path: Path) -> list[ScanEvent]:
    return [event async for event in read_local_file(path)]


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
    assert urls_in(await events_of(path)) == ["https://a.example/child.xml"]


async def test_a_broken_file_gives_what_it_has(tmp_path: Path):
    path = tmp_path / "sitemap.xml"
    path.write_text(URLSET.removesuffix("</urlset>"))
    events = await events_of(path)
    assert len(urls_in(events)) == 3
    assert isinstance(events[-1], DocumentClosed)
    assert (events[-1].outcome, events[-1].error_code) == ("cut", "truncated")


async def test_a_file_that_is_no_sitemap_is_an_error(tmp_path: Path):
    path = tmp_path / "page.xml"
    path.write_text("<html><body>no</body></html>")
    with pytest.raises(ScanError):
        await events_of(path)


@pytest.mark.parametrize("name", ["missing.xml", ""])
async def test_a_file_that_cannot_be_read_is_an_input_error(tmp_path: Path, name: str):
    with pytest.raises(InputError, match="cannot be read"):
        await events_of(tmp_path / name)


async def test_a_named_pipe_is_read_as_a_stream(tmp_path: Path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_text(URLSET))
    writer.start()
    assert len(urls_in(await events_of(path))) == 3
    writer.join()


def test_what_is_a_file_and_what_is_a_site(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sitemap.xml").touch()
    (tmp_path / "example.com").touch()
    assert local_path("sitemap.xml") == Path("sitemap.xml")
    assert local_path("./anything") == Path("anything")
    assert local_path("/tmp/x.gz") == Path("/tmp/x.gz")
    for site in ("example.com", "https://example.com/sitemap.xml", "other.xml", "-"):
        assert local_path(site) is None
