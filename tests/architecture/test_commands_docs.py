"""Every command and option is listed in the reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate import commands_page


@pytest.mark.criterion("docs-correct")
def test_the_reference_of_commands_is_up_to_date(project: Path):
    page = (project / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    assert page == commands_page(), "run: make docs"


def test_the_reference_shows_the_options_of_a_scan():
    page = commands_page()
    options = (
        "--format table\\|tree\\|urls\\|json\\|jsonl\\|csv",
        "-o, --output FILE",
        "--rate NUMBER",
    )
    assert [option for option in options if f"| `{option}` |" not in page] == []


def test_the_words_on_commands_name_every_noun(project: Path):
    page = (project / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    headings = [line for line in commands_page().splitlines() if line.startswith("## siteatlas ")]
    nouns = {heading.split()[2] for heading in headings}
    assert nouns
    assert [noun for noun in sorted(nouns) if f"`{noun}" not in page] == []
