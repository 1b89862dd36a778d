"""Every relative link of the documentation leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
PAGES = ("*.md", "docs/**/*.md", "tests/corpus/*.md")


def pages(project: Path) -> Iterator[Path]:
    for pattern in PAGES:
        yield from project.glob(pattern)


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """The names of the headings, as they stand in links."""
    headings = HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return frozenset(word.replace(" ", "-") for word in words)


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = unquote(link).partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return False
    return not anchor or target.suffix != ".md" or anchor in anchors_of(target)


@pytest.fixture(scope="module")
def links(project: Path) -> list[tuple[Path, str]]:
    """Every relative link with the page it stands on."""
    found = [
        (page, link)
        for page in pages(project)
        for link in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8")))
    ]
    return [(page, link) for page, link in found if not SCHEME.match(link)]


@pytest.mark.criterion("docs-correct")
def test_every_relative_link_leads_somewhere(project: Path, links: list[tuple[Path, str]]):
    broken = [
        f"{page.relative_to(project)}: {link}"
        for page, link in links
        if not leads_somewhere(page, link)
    ]
    assert broken == []


def test_the_pages_hold_relative_links(links: list[tuple[Path, str]]):
    assert links
