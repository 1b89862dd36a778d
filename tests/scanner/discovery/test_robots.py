"""robots.txt as the sites really write it."""

from __future__ import annotations

import time
from itertools import product

import pytest

from siteatlas.scanner.discovery.robots import (
    MAX_BYTES,
    MAX_RULES_PER_GRAM,
    MAX_SITEMAPS,
    MAX_USAGE_LINES,
    AgentRules,
    Rule,
    UsageLine,
    parse_robots,
)
from tests.fixtures.timings import measured

AGENT = "Siteatlas/0.1 (sitemap reader)"


NOT_SITEMAPS = (
    "Sitemap https://a.example/s.xml and more",
    "The sitemap is at https://a.example/s.xml",
    "https://a.example/page",
    "my-sitemap: https://a.example/s.xml",
)


def sitemaps(text: str | bytes) -> tuple[str, ...]:
    return parse_robots(text.encode() if isinstance(text, str) else text).sitemaps


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
    measured(time.perf_counter() - started, 2)


def test_names_each_sitemap_once_and_in_order():
    assert sitemaps("Sitemap: /b\nSitemap: /a\nSitemap: /b") == ("/b", "/a")


def test_takes_ten_thousand_sitemap_lines_and_says_when_there_are_more():
    lines = [f"Sitemap: /{number}\n" for number in range(MAX_SITEMAPS)]
    whole = parse_robots("".join(lines).encode())
    assert (len(whole.sitemaps), whole.sitemaps_truncated) == (10_000, False)
    cut = parse_robots("".join([*lines, "Sitemap: /0\n", "Sitemap: /more\n"]).encode())
    assert (len(cut.sitemaps), cut.sitemaps_truncated) == (10_000, True)


def test_a_repeated_sitemap_line_is_not_one_too_many():
    lines = [f"Sitemap: /{number}\n" for number in range(MAX_SITEMAPS)]
    assert not parse_robots("".join([*lines, "Sitemap: /0\n"]).encode()).sitemaps_truncated


def test_bytes_of_a_sitemap_address_that_are_not_utf_8_are_percent_encoded():
    latin = "Sitemap: https://a.example/é.xml".encode("latin-1")
    assert sitemaps(latin) == ("https://a.example/%E9.xml",)
    assert sitemaps("Sitemap: https://a.example/é.xml") == ("https://a.example/é.xml",)


def test_an_agent_with_several_names_gets_the_groups_of_the_first_that_has_some():
    text = "User-agent: *\nDisallow: /a\nUser-agent: family\nDisallow: /b"
    robots = parse_robots(text.encode())
    found = [robots.group_for(*names) for names in (("x",), ("x", "family"), ("Family/1", "*"))]
    assert found == ["*", "family", "family"]
    assert [robots.rules_for("x", "family").allows(path) for path in ("/a", "/b")] == [True, False]
    assert parse_robots(b"").group_for("x") is None


def test_lines_about_the_use_of_content_are_kept_with_the_agents_before_them():
    text = (
        "Content-Signal: a\nUser-agent: x\nUser-agent: y\ncontent-usage: b # c\nContent-Signal: d\n"
        "User-agent: z\nDisallow: /\nContent-Signal: e"
    )
    found = [(one.line, one.key, one.value, list(one.agents)) for one in usage_of(text)]
    assert found == [
        (1, "content-signal", "a", []),
        (4, "content-usage", "b", ["x", "y"]),
        (5, "content-signal", "d", ["x", "y"]),
        (8, "content-signal", "e", ["z"]),
    ]
    assert len(usage_of("Content-Signal: a\n" * 1_000)) == MAX_USAGE_LINES


def usage_of(text: str) -> tuple[UsageLine, ...]:
    return parse_robots(text.encode()).usage


def test_reads_500_kib_and_whole_lines_only():
    line = b"Sitemap: /late\n"
    before = b"#" * (MAX_BYTES - len(line) - 1) + b"\n"
    assert sitemaps(before + line) == ("/late",)
    assert sitemaps(b"#" + before + line) == ()


def test_bytes_that_are_not_utf_8_do_no_harm():
    assert sitemaps(b"# caf\xe9\nSitemap: /a") == ("/a",)


def rules(text: str | bytes, agent: str = AGENT) -> AgentRules:
    content = text.encode() if isinstance(text, str) else text
    return parse_robots(content).rules_for(agent)


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


@pytest.mark.parametrize("name", ["*WordPress*", "*bot", "*',"])
def test_a_name_that_begins_with_a_star_is_not_the_star(name):
    text = f"User-agent: {name}\nDisallow: /\n\nUser-agent: *\nDisallow: /private"
    assert rules(text).allows("/sitemap.xml")
    assert not rules(text).allows("/private")


@pytest.mark.parametrize("name", ["*", "* ", "* all of you", "*\tall"])
def test_a_star_alone_or_before_a_blank_is_everybody(name):
    assert not rules(f"User-agent: {name}\nDisallow: /a").allows("/a")


@pytest.mark.parametrize(
    "key", ["User Agent", "user agent", "USER AGENT", "User-Agent", "UserAgent"]
)
def test_names_agents_with(key):
    assert not rules(f"{key}: *\nDisallow: /a").allows("/a")


@pytest.mark.parametrize("agent", ["a", "b"])
def test_a_crawl_delay_does_not_end_a_list_of_agents(agent):
    text = "User-agent: a\nCrawl-delay: 5\nUser-agent: b\nDisallow: /x"
    assert not rules(text, agent).allows("/x")


def test_a_crawl_delay_holds_for_the_agents_named_before_it():
    text = (
        "User-agent: a\nUser-agent: b\nCrawl-delay: 5\n"
        "User-agent: c\nDisallow: /x\nCrawl-delay: 7\nUser-agent: d\nDisallow: /y"
    )
    assert [rules(text, agent).crawl_delay for agent in "abcd"] == [5, 5, 7, None]


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/foo/bar?baz=quz", "/foo/bar?baz=quz"),
        ("/ツ", "/%E3%83%84"),
        ("/%E3%83%84", "/ツ"),
        ("/%e3%83%84", "/%E3%83%84"),
        ("/%62%61%7A", "/baz"),
        ("/baz", "/%62%61%7A"),
        ("/~user", "/%7euser"),
        ("/%7Euser", "/~user"),
        ("/a%3cb", "/a%3Cb"),
        ("/a<b", "/a%3Cb"),
        ("/a b", "/a%20b"),
        ("/file-%2A.html", "/file-*.html"),
        ("/price-%24", "/price-$"),
        ("/a$b", "/a$b"),
        ("/*é$", "/caf%C3%A9"),
    ],
)
def test_percent_encoding_makes_no_difference_to(pattern, path):
    assert not rules(f"User-agent: *\nDisallow: {pattern}").allows(path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/a%2Fb", "/a/b"),
        ("/a/b", "/a%2Fb"),
        ("/a%3Fb", "/a?b"),
        ("/file-%2A.html", "/file-x.html"),
    ],
)
def test_an_encoded_reserved_character_is_not_the_character_itself(pattern, path):
    assert rules(f"User-agent: *\nDisallow: {pattern}").allows(path)


def test_bytes_of_a_rule_that_are_not_utf_8_are_compared_as_bytes():
    text = "User-agent: *\nDisallow: /é".encode("latin-1")
    assert not rules(text).allows("/%E9")
    assert rules(text).allows("/%C3%A9")


@pytest.mark.parametrize(
    "agent", ["crawler1", "Crawler1/2.0", "MJ12bot/v1.4 (more)", "archive.org_bot"]
)
def test_names_of_agents_are_compared_in_full(agent):
    text = f"User-agent: {agent}\nDisallow: /a\n\nUser-agent: *\nDisallow: /b"
    assert not rules(text, agent).allows("/a")
    for other in ("crawler", "crawler2", "MJ", "archive"):
        assert rules(text, other).allows("/a")
        assert not rules(text, other).allows("/b")


def test_the_groups_of_an_agent_count_as_one():
    text = "User-agent: a\nDisallow: /x\nUser-agent: b\nDisallow: /y\nUser-agent: A\nDisallow: /z"
    found = [rules(text, "a").allows(path) for path in ("/x", "/y", "/z")]
    assert found == [False, True, False]


def test_returns_the_rule_that_decides_and_its_line():
    text = "# ours\r\nUser-agent: a\r\nDisallow: /shop\r\nAllow: /shop/*.html$\r\n"
    robots = parse_robots(text.encode())
    assert robots.rule_for("a", "/shop/1") == Rule("/shop", allow=False, line=3)
    assert robots.rule_for("a", "/shop/1.html") == Rule("/shop/*.html$", allow=True, line=4)
    assert robots.rule_for("a", "/") is None
    assert robots.allows("b", "/shop/1")
    assert not robots.allows("a", "/shop/1")


@pytest.mark.parametrize("start", ["*", "*sit*"])
def test_only_the_first_of_many_similar_wildcard_rules_count(start: str):
    letters = "sitemap.xl"
    alike = [f"Disallow: {start}{a}*{b}*{c}\n" for a, b, c in product(letters, repeat=3)]
    few = rules("User-agent: *\n" + "".join(alike[:MAX_RULES_PER_GRAM]))
    many = rules("User-agent: *\n" + "".join([*alike, "Disallow: /private\n"]))
    assert (few.is_truncated, many.is_truncated) == (False, True)
    assert not many.allows("/sitemap.xml")
    assert not many.allows("/private")
    assert many.allows("/about")


@pytest.mark.slow
def test_what_a_path_costs_does_not_depend_on_the_number_of_rules():
    letters = "/sitemap.xl0123456789"
    lines = [f"disallow:*{''.join(f'{a}*' for a in some)}\n" for some in product(letters, repeat=4)]
    hostile = rules("User-agent: *\n" + "".join(lines)[: MAX_BYTES - 100])
    started = time.process_time()
    for number in range(50):
        hostile.allows(f"/sitemap{number}.xml")
    measured(time.process_time() - started, 0.3)
    assert hostile.is_truncated


def test_robots_txt_cannot_disallow_itself():
    robots = parse_robots(b"User-agent: *\nDisallow: /\n")
    assert robots.allows(AGENT, "/robots.txt")
    assert robots.rule_for(AGENT, "/robots.txt") is None
    assert not robots.allows(AGENT, "/robots.txt.gz")


def test_the_tags_of_a_robots_txt_that_is_a_web_page_are_no_part_of_its_values():
    lines = ["User-agent: *<br>", "Disallow: /x<BR>", "Sitemap: https://a.example/s.xml<br />"]
    robots = parse_robots("\n".join(lines).encode())
    assert robots.sitemaps == ("https://a.example/s.xml",)
    assert not robots.allows(AGENT, "/x")
    assert robots.allows(AGENT, "/y")
