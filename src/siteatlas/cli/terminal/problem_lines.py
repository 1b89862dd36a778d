"""Formats problems for people: by code with its meaning, then the documents, then samples."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from siteatlas.errors import error_classes
from siteatlas.scanner.events import ProblemSample
from siteatlas.scanner.problem_codes import meaning_of_problem

NOTHING_KNOWN = ProblemSample()
MIN_ADDRESS_WIDTH = 16


@dataclass(frozen=True, slots=True)
class ShownProblem:
    """One kind of problem in one place; `remark` follows the count."""

    code: str
    where: str | None
    count: int
    samples: Sequence[ProblemSample] = ()
    remark: str = ""


class ProblemLines:
    """Writes problems that come ordered by code; each code is explained at its first problem.

    With a `width`, explanations are wrapped and addresses shortened to fit a terminal.
    """

    def __init__(self, width: int | None = None) -> None:
        self._width = width
        self._code: str | None = None

    def of(self, problem: ShownProblem) -> Iterator[str]:
        """The lines of the next problem."""
        if problem.code != self._code:
            self._code = problem.code
            yield from self._wrapped(f"{problem.code}: {meaning_of(problem.code)}")
        remark = f", {problem.remark}" if problem.remark else ""
        where = problem.where or "the scan as a whole"
        yield self._fit_to_terminal(f"  {problem.count:,} in ", where, remark)
        for sample in problem.samples:
            if sample != NOTHING_KNOWN:
                yield self._fit_to_terminal("    ", _sample_words(sample))

    def _wrapped(self, text: str) -> list[str]:
        """The explanation of a problem code, wrapped to the width of the terminal."""
        if self._width is None:
            return [text]
        return textwrap.wrap(text, self._width, subsequent_indent="  ", break_on_hyphens=False)

    def _fit_to_terminal(self, before: str, middle: str, after: str = "") -> str:
        """A line of a problem list, its middle shortened to the width of the terminal."""
        if self._width is not None:
            # Late, because rich is needed on a terminal only.
            from siteatlas.cli.terminal.tables import shorten_middle

            room = self._width - len(before) - len(after)
            middle = shorten_middle(middle, max(room, MIN_ADDRESS_WIDTH))
        return before + middle + after


def meaning_of(code: str) -> str:
    """What a code of a problem or an error means, in a few words."""
    meaning = meaning_of_problem(code)
    if meaning is not None:
        return meaning.replace("`", "").replace("[extras](extras.md)", "extras")
    for error in error_classes():
        if error.code == code:
            return str(error().message)
    return "not known to this version"


def _sample_words(sample: ProblemSample) -> str:
    """A sample of a problem as printed: the number of its entry, its URL and its value."""
    number = f"entry {sample.entry:,}: " if sample.entry is not None else ""
    value = "" if sample.value is None else repr(sample.value)
    return number + "  ".join(part for part in (sample.url, value) if part)
