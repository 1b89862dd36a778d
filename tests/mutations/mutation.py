"""A small change that makes the code wrong: its edits, and the tests that must go red.

It changes text in memory only; `run.py` writes it into a copy of the project.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

EVERY = None


@dataclass(frozen=True)
class Edit:
    """In `file`, below the package, `old` occurs `times` times and becomes `new`.

    `EVERY` replaces as many occurrences as there are, at least one.
    """

    file: str
    old: str
    new: str
    times: int | None = 1

    def applied_to(self, text: str) -> str:
        """The text of the file after the edit; raises LookupError when the edit does not fit."""
        found = text.count(self.old)
        expected = max(1, found) if self.times is EVERY else self.times
        if found != expected:
            raise LookupError(f"{self.file} contains {self.old!r} {found} times, not {expected}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Mutation:
    """What the changed code does, and the tests that go red."""

    says: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]

    def changed_files(self, package: Path) -> dict[Path, str]:
        """The files of `package` that the mutation changes, with their text afterwards."""
        texts: dict[Path, str] = {}
        for edit in self.edits:
            path = package / edit.file
            text = texts.get(path) or path.read_text(encoding="utf-8")
            texts[path] = edit.applied_to(text)
        return texts


def mutation(says: str, tests: str, *edits: Edit) -> Mutation:
    return Mutation(says, edits, tuple(tests.split()))
