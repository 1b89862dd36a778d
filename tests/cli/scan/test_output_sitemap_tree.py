"""The tree of a site's sitemaps."""

from __future__ import annotations

from siteatlas.cli.scan.output import tree_text
from siteatlas.cli.terminal.output import counted
from siteatlas.scanner.report import ScanReport, SitemapSeen


def sitemap(url: str, parent: str | None = None, **more: object) -> SitemapSeen:
    values: dict[str, object] = {
        "type": "standard",
        "discovery_method": "robots_txt",
        "status": "completed",
        "outcome": "complete",
        "url_count": 2,
        "error_code": None,
        "error": None,
        "http_status": 200,
        "wire_bytes": 1,
        "decoded_bytes": 1,
        "fetch_seconds": 0.1,
    }
    return SitemapSeen(url=url, parent=parent, **(values | more))  # type: ignore[arg-type]


def lines_of(*sitemaps: SitemapSeen) -> list[str]:
    report = ScanReport("a.example", url_count=4, sitemaps=list(sitemaps))
    return tree_text(report).decode().splitlines()


def test_children_stand_below_their_index():
    lines = lines_of(
        sitemap("index", type="index", url_count=0),
        sitemap("one", "index"),
        sitemap("other", url_count=1),
        sitemap("two", "index", outcome="cut", error_code="truncated"),
    )
    assert lines == [
        "a.example  4 URLs",
        "├── index  index",
        "│   ├── one  2 URLs",
        "│   └── two  2 URLs, cut: truncated",
        "└── other  1 URL",
    ]


def test_a_child_whose_index_is_missing_stands_alone():
    assert lines_of(sitemap("one", "gone"))[1:] == ["└── one  2 URLs"]


def test_indexes_that_name_each_other_do_not_go_round():
    lines = lines_of(sitemap("self", "self"), sitemap("a", "b"), sitemap("b", "a"))
    assert lines[1:] == ["└── self  2 URLs"]


def test_a_url_cannot_steer_the_terminal():
    assert lines_of(sitemap("x\x1b[2J"))[1:] == ["└── x\\x1b[2J  2 URLs"]


def test_one_is_not_many():
    assert [counted(n, "URL") for n in (0, 1, 2000)] == ["0 URLs", "1 URL", "2,000 URLs"]
