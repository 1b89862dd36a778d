"""A small change that makes the code wrong: its edits, and the tests that must go red.

It changes text in memory only; `run.py` writes it into a copy of the project.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.fixtures.source_names import locate, source_span

EVERY = None
FIRST_IMPORT = "from __future__ import annotations\n"


@dataclass(frozen=True)
class Edit:
    """In the source of `name`, `old` occurs `times` times and becomes `new`.

    `name` is a module, a class, a function, a method or a variable, dotted in full, such as
    `siteatlas.scheduler.consumer.Consumer`; or a file of the project, such as
    `docker-compose.yml`. `EVERY` replaces as many occurrences as there are, at least one.
    """

    name: str
    old: str
    new: str
    times: int | None = 1

    def place(self, package: Path) -> tuple[Path, str]:
        """The file that the edit changes, and what follows the name of the module."""
        file = package.parent.parent / self.name
        return (file, "") if file.is_file() else locate(self.name, package)

    def applied_to(self, text: str, qualified: str = "") -> str:
        """The text of the module after the edit of `qualified`, or of all of it.

        Raises LookupError when the edit does not fit.
        """
        start, end = source_span(text, qualified)
        source = text[start:end]
        found = source.count(self.old)
        expected = max(1, found) if self.times is EVERY else self.times
        if found != expected:
            raise LookupError(f"{self.name} contains {self.old!r} {found} times, not {expected}")
        return text[:start] + source.replace(self.old, self.new) + text[end:]


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
            path, qualified = edit.place(package)
            text = texts.get(path) or path.read_text(encoding="utf-8")
            texts[path] = edit.applied_to(text, qualified)
        return texts


def mutation(says: str, tests: str, *edits: Edit) -> Mutation:
    return Mutation(says, edits, tuple(tests.split()))


def added_import(module: str, line: str) -> Edit:
    """One more import in a module."""
    return Edit(module, FIRST_IMPORT, f"{FIRST_IMPORT}{line}\n")
