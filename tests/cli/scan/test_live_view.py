"""The live view of a running scan: fits the terminal, escapes text, and yields to data."""

from __future__ import annotations

import io
import os
import pty
import sys
from collections.abc import Iterator

import pytest
from rich.console import Console

from siteatlas.cli.scan.live_view import awaited_words, can_redraw_progress, drawn, tree_lines
from siteatlas.cli.scan.output import DirectSink, EntryFilter, ScanEncoders
from siteatlas.cli.scan.runner import ScanRun, ScanRunner, ScanTarget
from siteatlas.cli.terminal.context import ColorChoice, begin
from siteatlas.scanner.events import (
    ChildLink,
    ChildrenFound,
    DiscoveryMethod,
    DocumentClosed,
    DocumentOpened,
    DocumentOutcome,
    DocumentRequested,
    EntriesRead,
    EntryColumns,
    RobotsRead,
    SitemapType,
)
from siteatlas.scanner.report import ReportBuilder

INDEX = "https://a.example/index.xml"


def opened(url: str, parent: str | None, type: SitemapType) -> DocumentOpened:
    return DocumentOpened(url, url, DiscoveryMethod.ROBOTS_TXT, type, parent, 0, 200)


def large_scan(read: int) -> ReportBuilder:
    builder = ReportBuilder("a.example")
    urls = [f"https://a.example/{number}\x1b.xml" for number in range(read + 2)]
    builder.observe(RobotsRead("https://a.example/robots.txt", 200, (INDEX,)))
    builder.observe(opened(INDEX, None, SitemapType.INDEX))
    builder.observe(ChildrenFound(INDEX, tuple(map(ChildLink, urls))))
    complete, method = DocumentOutcome.COMPLETE, DiscoveryMethod.ROBOTS_TXT
    builder.observe(DocumentClosed(INDEX, INDEX, complete, method, SitemapType.INDEX))
    for url in urls:
        builder.observe(opened(url, INDEX, SitemapType.STANDARD))
        builder.observe(EntriesRead(url, EntryColumns(["u"] * 10)))
    for url in urls[:read]:
        builder.observe(DocumentClosed(url, url, complete, method, parent_url=INDEX))
    return builder


async def no_events() -> None:
    raise NotImplementedError


def picture(builder: ReportBuilder, height: int) -> list[str]:
    conductor = ScanRunner(DirectSink(len), ScanEncoders(), EntryFilter())
    conductor.active.append(ScanRun(ScanTarget("a.example", no_events), builder))  # type: ignore[arg-type]
    console = Console(file=io.StringIO(), width=100, height=height)
    with console.capture() as capture:
        console.print(drawn(conductor, height))
    return capture.get().splitlines()


def test_the_picture_names_the_site_the_sitemaps_and_the_counts():
    lines = picture(large_scan(3), height=24)
    assert lines[0] == "a.example  robots.txt names 1 sitemap"
    assert lines[1] == f"{INDEX}  index"
    assert "4 of 6 documents, 50 URLs, " in lines[-1]


@pytest.mark.parametrize("height", [8, 24, 60])
def test_a_large_site_fits_into_the_terminal(height: int):
    lines = picture(large_scan(500), height)
    assert len(lines) < height
    assert any("more read" in line for line in lines)


def test_what_is_being_read_is_always_shown():
    lines = tree_lines(large_scan(500), room=10)
    assert [line for line in lines if line.endswith("…")] == [
        "  https://a.example/500\x1b.xml  10 URLs …",
        "  https://a.example/501\x1b.xml  10 URLs …",
    ]


def test_a_url_cannot_steer_the_terminal():
    assert not any("\x1b" in line for line in picture(large_scan(3), height=24))


@pytest.fixture
def terminal() -> Iterator[io.TextIOWrapper]:
    """A stream that is a terminal."""
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as stream:
        yield stream
    os.close(master)


def test_progress_is_animated_on_a_terminal_unless_something_prevents_it(
    monkeypatch, terminal, tmp_path
):
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    assert can_redraw_progress(data_on_terminal=False)
    assert not can_redraw_progress(data_on_terminal=True)
    with (tmp_path / "out").open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        assert can_redraw_progress(data_on_terminal=False)
        begin(0, quiet=True, color=ColorChoice.AUTO)
        assert not can_redraw_progress(data_on_terminal=False)


def test_nothing_is_animated_if_stdout_is_a_pipe(monkeypatch, terminal):
    reader, writer = os.pipe()
    monkeypatch.setattr(sys, "stderr", terminal)
    with os.fdopen(reader), os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert not can_redraw_progress(data_on_terminal=False)


def test_the_lines_of_a_slow_scan_name_what_holds_it_up():
    builder = ReportBuilder("a.example")
    assert awaited_words(builder) == "; waiting for robots.txt"
    builder.observe(RobotsRead("https://a.example/robots.txt", 200, (INDEX,)))
    assert awaited_words(builder) == ""
    for number in range(5):
        builder.observe(DocumentRequested(f"/{number}.xml", DiscoveryMethod.SITEMAP_INDEX))
    assert awaited_words(builder) == "; waiting for /0.xml, /1.xml, /2.xml and 2 more"
    builder.observe(opened("/0.xml", None, SitemapType.STANDARD))
    assert awaited_words(builder).startswith("; reading /0.xml; waiting for /1.xml, ")
