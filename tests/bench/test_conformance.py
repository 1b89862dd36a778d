"""Readers are graded by the set of addresses they find, and the page shows the grades."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.conformance_page import missed, topics_table
from bench.figure import Figure, comparison_lines
from bench.grades import Grade, grade
from bench.readings import Answer
from tests.corpus.cases import Case, load_cases

LOOPBACK = "http://127.0.0.1:9000"
A, B = "https://www.example.com/a", "https://www.example.com/b"


def case(**expected: object) -> Case:
    return Case("plain", "one", Path("one.xml"), {"urls": [], **expected})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(pages=[B, A, A]), Grade.EXACT),
        (Answer(either=[A, B]), Grade.EXACT),
        (Answer(pages=["a/", "b/"], forms={A: "a/", B: "b/"}), Grade.EXACT),
        (Answer(pages=[A, B], error="truncated"), Grade.EXACT),
        (Answer(pages=[A]), Grade.PART),
        (Answer(pages=[A, B, f"{A}b"]), Grade.WRONG),
        (Answer(pages=[f" {A}", B]), Grade.WRONG),
        (Answer(children=[A, B]), Grade.WRONG),
        (Answer(), Grade.FAILS),
        (Answer(error="ValueError"), Grade.FAILS),
    ],
)
def test_a_list_of_two_pages_is_graded_by_what_was_found(answer, expected):
    assert grade(case(urls=[A, B]), answer, LOOPBACK) is expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(Answer(), Grade.EXACT), (Answer(error="no"), Grade.EXACT), (Answer(pages=[A]), Grade.WRONG)],
)
def test_what_is_no_sitemap_is_read_exactly_by_finding_nothing(answer, expected):
    assert grade(case(outcome="unread"), answer, LOOPBACK) is expected


def test_an_empty_sitemap_is_no_error():
    assert grade(case(outcome="complete"), Answer(), LOOPBACK) is Grade.EXACT
    assert grade(case(outcome="complete"), Answer(error="no"), LOOPBACK) is Grade.FAILS


def test_an_address_of_the_loopback_site_counts_as_one_of_the_real_site():
    answer = Answer(children=[f"{LOOPBACK}/a"])
    assert grade(case(children=[A]), answer, LOOPBACK) is Grade.EXACT


def test_the_table_counts_by_topic_and_the_list_names_what_is_missed():
    cases = [case for case in load_cases() if case.topic in {"plain", "feeds"}]
    grades = {case.id: Grade.EXACT if case.topic == "plain" else Grade.FAILS for case in cases}
    total = sum(case.topic == "plain" for case in cases)
    lines = topics_table(cases, {"ours": grades}).splitlines()
    assert f"| plain | {total} of {total} |" in lines
    assert lines[-1] == f"| **all but feeds and text** | **{total} of {total}** |"
    assert "feeds: atom-03, atom-1," in missed("ours", grades)
    assert missed("ours", {"plain/minimal": Grade.EXACT}).strip().endswith("Nothing.")


def test_each_figure_of_ours_is_set_against_every_peer():
    figures = [Figure("usp", 100, 10.0), Figure("scrapy", 100, 2.0), Figure("scan", 100, 4.0)]
    assert comparison_lines(figures, {"usp", "scrapy"}) == [
        "scan: 2.50 x usp (ahead), 0.50 x scrapy (behind)"
    ]
    assert comparison_lines([*figures[:2], Figure("scan", problem="no")], {"usp", "scrapy"}) == []
