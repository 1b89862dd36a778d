"""robots.txt as the sites really write it."""

from __future__ import annotations

import time

import pytest

from siteatlas.scanner.robots import MAX_BYTES, Robots, parse_robots

AGENT = "Siteatlas/0.1 (sitemap reader)"


NOT_SITEMAPS = (
    "Sitemap https://a.example/s.xml and more",
    "The sitemap is at https://a.example/s.xml",
    "https://a.example/page",
    "my-sitemap: https://a.example/s.xml",
)


def sitemaps(text: str | bytes) -> tuple[str, ...]:
    return parse_robots(text.encode() if isinstance(text, str) else text, AGENT).sitemaps


@pytest.mark.parametrize(
    "line",
    [
        "Sitemap: https://a.example/s.xml",
        "sitemap:https://a.example/s.xml",
        "SITEMAP : https://a.example/s.xml",
        "  Sitemap:\thttps://a.example/s.xml  ",
        "Site-map: https://a.example/s.xml",
        "Sitemaps: https://a.example/s.xml",
        "Sitemap https://a.example/s.xml",
        "Sitemap: https://a.example/s.xml # the main one",
        "\ufeffSitemap: https://a.example/s.xml",
        "Sitemap_index: https://a.example/s.xml",
        "sitemap-url:https://a.example/s.xml",
        "Site-Map https://a.example/s.xml",
    ],
)
def test_finds_the_sitemap_in(line):
    assert sitemaps(line) == ("https://a.example/s.xml",)


@pytest.mark.parametrize(
    "text",
    [
        "# Sitemap: https://a.example/s.xml",
        "Sitemap:",
        "Sitemap:\nhttps://a.example/s.xml",
        "",
        *NOT_SITEMAPS,
    ],
)
def test_finds_no_sitemap_in(text):
    assert sitemaps(text) == ()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_reads_all_kinds_of_line_ends(end):
    assert sitemaps(f"Sitemap: /a{end}User-agent: *{end}Sitemap: /b") == ("/a", "/b")


@pytest.mark.parametrize("scheme", ["http", "https", "HTTPS"])
def test_a_bare_url_that_calls_itself_a_sitemap_is_one(scheme):
    assert sitemaps(f"{scheme}://a.example/Sitemap.xml") == (f"{scheme}://a.example/Sitemap.xml",)


def test_unknown_lines_do_not_end_a_list_of_agents():
    text = "User-agent: siteatlas\nHost: a.example\nUser-agent: other\nDisallow: /a"
    assert not rules(text).allows("/a")


def test_a_group_with_many_agents_and_rules_takes_no_time():
    text = "User-agent: *\n" * 12_000 + "Disallow: /a\n" * 12_000
    started = time.perf_counter()
    assert not rules(text).allows("/a")
    assert time.perf_counter() - started < 2


def test_names_each_sitemap_once_and_in_order():
    assert sitemaps("Sitemap: /b\nSitemap: /a\nSitemap: /b") == ("/b", "/a")


def test_takes_a_thousand_sitemap_lines_at_most():
    assert len(sitemaps("".join(f"Sitemap: /{number}\n" for number in range(1500)))) == 1000


def test_reads_500_kib_and_whole_lines_only():
    line = b"Sitemap: /late\n"
    before = b"#" * (MAX_BYTES - len(line) - 1) + b"\n"
    assert sitemaps(before + line) == ("/late",)
    assert sitemaps(b"#" + before + line) == ()


def test_bytes_that_are_not_utf_8_do_no_harm():
    assert sitemaps(b"# caf\xe9\nSitemap: /a") == ("/a",)


def rules(text: str) -> Robots:
    return parse_robots(text.encode(), AGENT)


def test_without_rules_everything_is_allowed():
    assert rules("").allows("/sitemap.xml")


def test_our_own_group_counts_before_the_group_for_all():
    text = "User-agent: *\nDisallow: /\n\nUser-agent: siteatlas\nDisallow: /private\n"
    assert rules(text).allows("/sitemap.xml")
    assert not rules(text).allows("/private/sitemap.xml")


def test_a_group_may_name_several_agents():
    text = "User-agent: other\nUser-agent: Siteatlas\nDisallow: /a\n\nUser-agent: *\nDisallow: /b"
    assert not rules(text).allows("/a")
    assert rules(text).allows("/b")


def test_a_sitemap_line_does_not_end_a_group():
    text = "User-agent: *\nSitemap: /s.xml\nDisallow: /a"
    assert not rules(text).allows("/a")


@pytest.mark.parametrize(
    ("rule", "path", "allowed"),
    [
        ("/a", "/a/b", False),
        ("/a$", "/a/b", True),
        ("/*.xml$", "/sitemap.xml", False),
        ("/*.xml$", "/sitemap.xml.gz", True),
        ("/a*b*c", "/a-b-c", False),
        ("", "/a", True),
        ("/", "/sitemap.xml", False),
    ],
)
def test_matches_patterns(rule, path, allowed):
    assert rules(f"User-agent: *\nDisallow: {rule}").allows(path) is allowed


def test_the_longest_rule_decides_and_allow_wins_at_equal_length():
    text = "User-agent: *\nDisallow: /a\nAllow: /a/b\nDisallow: /c\nAllow: /c"
    assert rules(text).allows("/a/b")
    assert not rules(text).allows("/a/c")
    assert rules(text).allows("/c")


@pytest.mark.parametrize(
    ("value", "delay"), [("2.5", 2.5), ("x", None), ("-1", None), ("inf", None)]
)
def test_reads_the_crawl_delay(value, delay):
    assert rules(f"User-agent: *\nCrawl-delay: {value}").crawl_delay == delay
