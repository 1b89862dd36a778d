"""How problems are written for a person."""

from __future__ import annotations

from siteatlas.cli.terminal.lines import ProblemLines, ShownProblem
from siteatlas.scanner.events import ProblemSample

SITEMAP = "https://www.example.com/sitemaps/products/2026/11/" + "a" * 60 + "/part-0001.xml"
PROBLEM = ShownProblem(
    "relative_url", SITEMAP, 3, [ProblemSample(url=SITEMAP, value="/a", entry=7)], "scan 4"
)


def test_every_line_fits_the_terminal():
    lines = list(ProblemLines(80).of(PROBLEM))

    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("relative_url: ")
    assert any(line.endswith("part-0001.xml, scan 4") for line in lines)


def test_without_a_terminal_nothing_is_shortened():
    lines = list(ProblemLines().of(PROBLEM))

    assert lines[1] == f"  3 in {SITEMAP}, scan 4"
    assert lines[2] == f"    entry 7: {SITEMAP}  '/a'"


def test_a_code_is_explained_once():
    lines = ProblemLines(80)
    first, second = list(lines.of(PROBLEM)), list(lines.of(PROBLEM))

    assert len(first) > len(second)
    assert not any(line.startswith("relative_url") for line in second)
