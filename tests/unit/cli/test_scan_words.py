"""What is said when a scan has ended."""

from __future__ import annotations

from siteatlas.cli.scan_report import Problem, ScanReport
from siteatlas.cli.scan_words import problem_words, say_block, say_line


def test_five_lines_tell_a_person_how_it_went(capsys):
    report = ScanReport("a.example", url_count=1000, problems=[Problem("bad_url", None, None, 3)])
    say_block(report, dated=250, seconds=2.0)
    assert capsys.readouterr().err.splitlines() == [
        "",
        "  sitemaps  0 read",
        "  URLs      1,000",
        "  lastmod   25% of the URLs have one",
        "  problems  bad_url (3)",
        "  time      2.0 s, 500 URLs a second",
    ]


def test_a_log_gets_one_line_and_the_problems(capsys):
    report = ScanReport("a.example", problems=[Problem("bad_url", "x\x1b", None, 3)])
    say_line(report, seconds=0.0)
    assert capsys.readouterr().err.splitlines() == [
        "a.example: 0 URLs in 0 sitemaps, 0.0 s, 0 URLs a second.",
        "  bad_url (3) in x\\x1b",
    ]


def test_problems_are_added_up_by_code_and_the_rare_ones_left_out():
    problems = [Problem(f"code_{n}", None, None, n + 1) for n in range(9)]
    words = problem_words(ScanReport("a.example", problems=[*problems, *problems]))
    assert words.startswith("code_8 (18), code_7 (16), ")
    assert words.endswith(" and 3 more kinds")


def test_no_problem_is_said_too():
    assert problem_words(ScanReport("a.example")) == "none"


def test_a_log_is_not_flooded(capsys):
    problems = [Problem("bad_url", f"document {number}", None) for number in range(500)]
    say_line(ScanReport("a.example", problems=problems), seconds=1.0)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 12
    assert lines[-1] == "  … and 490 more"
