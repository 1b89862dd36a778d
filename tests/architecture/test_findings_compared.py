"""The comparison with other checkers names rules that exist, and its shares are those of its rows."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from docs.compared import VERDICTS, compared_page, sources, verdict_of
from siteatlas.findings.rules import all_rules

SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
ROW = re.compile(rf"^\| (.+?) \| ({'|'.join(VERDICTS)}) \| (.+) \|$", re.MULTILINE)
# How many rules each of them publishes.
PUBLISHED = {
    "Google Search Console": 35,
    "Yandex Webmaster": 20,
    "Screaming Frog SEO Spider": 7,
    "Sitebulb": 8,
    "sitemap-validator": 134,
}


@pytest.fixture
def page(project: Path) -> str:
    return (project / "docs" / "reference" / "findings-compared.md").read_text(encoding="utf-8")


def test_the_comparison_is_up_to_date(page: str):
    assert page == compared_page(), "run: make docs"


def test_every_rule_that_the_comparison_names_exists(page: str):
    named = set(re.findall(r"\[`([a-z0-9-]+)`\]\(findings\.md#([a-z0-9-]+)\)", page))
    assert named
    assert {code for pair in named for code in pair} <= set(all_rules())


def test_the_shares_are_those_of_the_rows(page: str):
    parts = SECTION.split(page)
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        counts: Counter[str] = Counter()
        for theirs, verdict, _ in ROW.findall(text):
            counts[verdict] += len(theirs.split(", "))
        assert counts.total() == PUBLISHED[name]
        found = counts["covered"] + counts["differently"]
        applies = counts.total() - counts["does not apply"]
        shares = [found / (applies - counts["needs pages"]), found / applies]
        cells: list[object] = [counts.total(), *(counts[verdict] for verdict in VERDICTS)]
        cells += [f"{share:.0%}" for share in shares]
        assert f"| {name} | {' | '.join(map(str, cells))} |" in parts[0]
    assert parts[1::2] == list(PUBLISHED)


def test_each_of_their_rules_stands_in_one_row():
    for source in sources():
        names = [name for row in source["rows"] for name in row["theirs"]]
        assert len(names) == len(set(names)) == PUBLISHED[source["name"]]


def test_what_lint_covers_it_judges():
    covered = {
        code
        for source in sources()
        for row in source["rows"]
        if verdict_of(row) in {"covered", "differently"}
        for code in row["by"]
    }
    assert [code for code in sorted(covered) if not all_rules()[code].lint] == []


def test_nearly_all_that_documents_show_is_found():
    for source in sources():
        counts = Counter(verdict_of(row) for row in source["rows"] for _ in row["theirs"])
        found = counts["covered"] + counts["differently"]
        assert found >= 0.95 * (found + counts["missing"]), source["name"]
