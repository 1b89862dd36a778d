"""The table of a scan on a terminal: one line for each sitemap, however narrow."""

from __future__ import annotations

import pytest

from siteatlas.cli.scan.output import ScanFormat, encoders_for
from siteatlas.scanner.report import ScanReport, SitemapSeen

HOST = "https://shop.example.com"


def seen(path: str, url_count: int, outcome: str = "complete") -> SitemapSeen:
    error = None if outcome == "complete" else "http_not_found"
    return SitemapSeen(
        url=HOST + path,
        type="standard",
        discovery_method="sitemap_index",
        status="completed",
        outcome=outcome,
        url_count=url_count,
        error_code=error,
        error=None,
        http_status=None,
        parent=None,
        wire_bytes=0,
        decoded_bytes=0,
        fetch_seconds=0.0,
    )


@pytest.mark.parametrize("columns", [80, 120])
def test_each_sitemap_of_a_scan_takes_one_line_on_a_terminal(monkeypatch, columns: int):
    monkeypatch.setenv("COLUMNS", str(columns))
    long = "/sitemaps/" + "a-very-long-name-" * 8 + "1.xml.gz"
    sitemaps = [seen("/a.xml", 20_000), seen(long, 7), seen("/lost.xml", 0, "unread")]
    report = ScanReport("shop.example.com", sitemaps=sitemaps)
    printed = encoders_for(ScanFormat.TABLE, many=False, terminal=True).report(report).decode()
    head, *lines = printed.splitlines()
    assert head.startswith(f"SITEMAP ({HOST})")
    assert len(lines) == len(sitemaps)
    assert max(map(len, printed.splitlines())) <= columns
    assert "20,000" in lines[0]
    assert "…" in lines[1]
    assert lines[2].startswith("/lost.xml ")
    assert lines[2].rstrip().endswith("http_not_found")
