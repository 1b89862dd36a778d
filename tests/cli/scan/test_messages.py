"""The summary after a scan."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from siteatlas.cli.scan.messages import (
    print_filtered_count,
    print_summary,
    print_summary_line,
    print_unfetched_children,
    problem_words,
)
from siteatlas.cli.scan.output import EntryFilter
from siteatlas.cli.terminal.context import ColorChoice, begin
from siteatlas.scanner.events import ProblemSample
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.report import CandidateSeen, Problem, ScanReport, SitemapSeen


def test_five_lines_tell_a_person_how_it_went(capsys):
    report = ScanReport("a.example", url_count=1000, problems=[Problem("bad_url", None, None, 3)])
    print_summary(report, dated=250, seconds=2.0)
    assert capsys.readouterr().err.splitlines() == [
        "",
        "  sitemaps  0 read",
        "  URLs      1,000",
        "  lastmod   25% of the URLs have one",
        "  problems  bad_url (3)",
        "  time      2.0 s, 500 URLs a second",
        "            -v explains these codes and shows where they occur",
    ]


def test_urls_that_a_sitemap_repeats_are_named_beside_the_count(capsys):
    repeated = [Problem("duplicate_url", "https://a.example/1.xml", None, 1)]
    print_summary(ScanReport("a.example", url_count=1543, problems=repeated), 0, seconds=2.0)
    assert "  URLs      1,543, 1 of them repeated within a sitemap\n" in capsys.readouterr().err


def test_a_log_gets_one_line_and_the_problems(capsys):
    report = ScanReport("a.example", problems=[Problem("bad_url", "x\x1b", None, 3)])
    print_summary_line(report, seconds=0.0)
    assert capsys.readouterr().err.splitlines() == [
        "a.example: 0 URLs in 0 sitemaps, 0.0 s.",
        rf"  bad_url (3) in x\x1b: {ProblemCode.BAD_URL.meaning}",
    ]


def test_a_document_of_which_nothing_was_read_is_not_counted(capsys):
    about = ("https://a.example/1.xml", "standard", "robots_txt", "completed", "complete")
    seen = SitemapSeen(*about, 5, None, None, 200, None, 1, 1, 0.1)
    lost = replace(seen, url="https://a.example/2.xml", outcome="unread")
    print_summary_line(ScanReport("a.example", sitemaps=[seen, lost]), seconds=0.0)
    assert "in 1 sitemap," in capsys.readouterr().err


@pytest.mark.parametrize(
    ("urls", "advice"),
    [
        (
            ["a.xml", "https://a.example/b.xml"],
            ["siteatlas scan --only https://a.example/b.xml"],
        ),
        (["a.xml", "/b.xml"], []),
    ],
)
def test_a_child_is_offered_for_reading_only_if_it_names_its_site(urls, advice, capsys):
    children = [
        CandidateSeen(url, "sitemap_index", "skipped", ProblemCode.NOT_FETCHED, None, None)
        for url in urls
    ]
    print_unfetched_children(ScanReport("./index.xml", candidates=children))
    told, *offered = capsys.readouterr().err.splitlines()
    assert " 2 sitemaps" in told
    assert [line.partition(": ")[2] for line in offered] == advice


def test_problems_are_added_up_by_code_and_the_rare_ones_left_out():
    problems = [Problem(f"code_{n}", None, None, n + 1) for n in range(9)]
    words = problem_words(ScanReport("a.example", problems=[*problems, *problems]))
    assert words.startswith("code_8 (18), code_7 (16), ")
    assert words.endswith(" and 3 more kinds")


def test_no_problem_is_said_too():
    assert problem_words(ScanReport("a.example")) == "none"


def test_a_log_is_not_flooded(capsys):
    problems = [Problem("bad_url", f"document {number}", None) for number in range(500)]
    print_summary_line(ScanReport("a.example", problems=problems), seconds=1.0)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 12
    assert lines[-1].startswith("  … and 490 more; -v ")


def test_verbose_shows_every_problem_with_what_it_means_and_samples(capsys):
    sample = ProblemSample("https://a.example/1", "x\x1b", 12)
    problems = [
        Problem("lastmod_invalid", "https://a.example/s.xml", None, 3, (sample,)),
        Problem("duplicate_content", "https://a.example/t.xml", None),
    ]
    begin(1, quiet=False, color=ColorChoice.AUTO)
    try:
        print_summary_line(ScanReport("a.example", problems=problems), seconds=0.0)
    finally:
        begin(0, quiet=False, color=ColorChoice.AUTO)
    assert capsys.readouterr().err.splitlines()[1:] == [
        f"  duplicate_content: {ProblemCode.DUPLICATE_CONTENT.meaning}",
        "    1 in https://a.example/t.xml",
        "  lastmod_invalid: " + ProblemCode.LASTMOD_INVALID.meaning.replace("`", ""),
        "    3 in https://a.example/s.xml",
        "      entry 12: https://a.example/1  'x\\x1b'",
    ]


def test_without_urls_nothing_is_said_of_their_dates(capsys):
    print_summary(ScanReport("a.example"), dated=0, seconds=0.04)
    assert [line.split()[0] for line in capsys.readouterr().err.splitlines()[1:]] == [
        "sitemaps",
        "URLs",
        "problems",
        "time",
    ]


def told_of(url_count: int, seconds: float, capsys) -> list[str]:
    """What the last line of the summary and the one line of a log say after their first word."""
    report = ScanReport("a.example", url_count=url_count)
    print_summary(report, dated=0, seconds=seconds)
    print_summary_line(report, seconds=seconds)
    *_, time, line = capsys.readouterr().err.splitlines()
    return [time.removeprefix("  time      "), line.removeprefix("a.example: ")]


def test_a_rate_is_only_shown_for_a_time_that_can_be_measured(capsys):
    assert told_of(9, 0.04, capsys) == ["0.0 s", "9 URLs in 0 sitemaps, 0.0 s."]


def test_a_rate_below_one_is_not_shown_as_zero(capsys):
    assert told_of(3, 12.0, capsys) == ["12.0 s", "3 URLs in 0 sitemaps, 12.0 s."]


def left_out_words(wanted: EntryFilter, capsys) -> str:
    print_filtered_count(wanted)
    return str(capsys.readouterr().err)


def test_what_the_filters_left_out_is_counted(capsys):
    wanted = EntryFilter(kept=1, left_out=3, undated=2)
    words = left_out_words(wanted, capsys)
    assert re.findall(r"\d+", words) == ["3", "2"]
    assert "lastmod" in words
    assert left_out_words(EntryFilter(kept=1), capsys) == ""


def test_a_pattern_that_nothing_fits_is_explained(capsys):
    wanted = EntryFilter.of(None, ["blog"], [])
    wanted.left_out = 1
    words = left_out_words(wanted, capsys)
    assert re.findall(r"\d+", words) == ["1"]
    assert "'*blog*'" in words
