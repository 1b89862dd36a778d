"""The cases of this corpus: each document with what its author meant, read from the files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).resolve().parent
ORIGIN = "https://www.example.com"
EXPECTED = ".expected.json"
ROBOTS = ".robots.txt"


@dataclass(frozen=True, slots=True)
class Case:
    """One document. `is_policy`: the expectation is our own rule, others may do otherwise."""

    topic: str
    name: str
    file: Path
    expected: dict[str, Any]

    @property
    def id(self) -> str:
        return f"{self.topic}/{self.name}"

    @property
    def kind(self) -> str:
        """What is to be read: `robots`, `index` or `pages`."""
        if "sitemaps" in self.expected:
            return "robots"
        return "index" if self.expected.get("children") else "pages"

    @property
    def addresses(self) -> list[str]:
        """All that the document lists, whatever its kind."""
        expected = self.expected
        return [
            *expected.get("sitemaps", ()),
            *expected.get("urls", ()),
            *expected.get("children", ()),
        ]

    @property
    def is_policy(self) -> bool:
        return bool(self.expected.get("policy"))

    @property
    def path(self) -> str:
        """Where a site serves the document; relative addresses start from there."""
        if self.kind == "robots":
            return f"/{self.topic}/{self.name}/robots.txt"
        return f"/{self.topic}/{self.file.name}"


def load_cases() -> list[Case]:
    """All cases, by topic and name."""
    return [_load(file) for file in sorted(CORPUS.glob(f"*/*{EXPECTED}"))]


def _load(expectation: Path) -> Case:
    name = expectation.name.removesuffix(EXPECTED)
    files = [
        file
        for file in expectation.parent.iterdir()
        if file.name.startswith(f"{name}.") and not file.name.endswith(EXPECTED)
    ]
    if len(files) != 1:
        raise ValueError(f"{expectation} needs one document beside it, not {len(files)}")
    expected = json.loads(expectation.read_text(encoding="utf-8"))
    return Case(expectation.parent.name, name, files[0], expected)
