"""Regular expressions use only what `re` matches correctly on every supported Python.

CPython 3.11.0 to 3.11.4 match possessive groups wrongly (gh-106052); captures inside possessive or
atomic groups can fail with SystemError up to 3.12 (gh-101955). Single characters are not affected.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fixtures.source_names import module_of, modules_in

# A group ends with `)`; a field of an f-string, such as `{block}`, may be one.
POSSESSIVE_GROUP = re.compile(r"[)}](?:[*+?]|\{+[\w{},]*\}+)\+(?!\+)")
ATOMIC_GROUP = re.compile(r"\(\?>")


def broken_constructs(source: str) -> list[str]:
    found = [*POSSESSIVE_GROUP.finditer(source), *ATOMIC_GROUP.finditer(source)]
    return [source[max(match.start() - 20, 0) : match.end()] for match in found]


def test_no_pattern_matches_a_group_possessively(package: Path):
    broken = {
        module_of(file, package): found
        for file in modules_in("siteatlas", package)
        if (found := broken_constructs(file.read_text(encoding="utf-8")))
    }
    assert broken == {}


@pytest.mark.parametrize(
    "source",
    [
        r'r"(?:ab?c)++"',
        r'r"(?:ab?c)*+x"',
        r'r"(?:ab?c)?+x"',
        r'r"(?:ab?c){1,64}+x"',
        r'rf"(?:ab?c){{1,{LIMIT}}}+x"',
        r'f"({block}*+)"',
        r'r"(?>a|b)"',
    ],
)
def test_every_spelling_of_a_possessive_group_is_found(source: str):
    assert broken_constructs(source)


@pytest.mark.parametrize("source", [r'r"[^<]*+\s++x{1,9}+"', r'r"(?:ab?c)+"', 'f"{a}+{b}"'])
def test_possessive_characters_and_plain_groups_are_not_reported(source: str):
    assert broken_constructs(source) == []
