"""Problems as lines for a person: by code with what it means, then where, then samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from siteatlas.errors import error_classes
from siteatlas.scanner.events import ProblemSample
from siteatlas.scanner.problem_codes import MEANINGS

NOTHING_KNOWN = ProblemSample()


@dataclass(frozen=True, slots=True)
class ShownProblem:
    """One kind of problem in one place; `remark` stands behind the count."""

    code: str
    where: str | None
    count: int
    samples: Sequence[ProblemSample] = ()
    remark: str = ""


class ProblemLines:
    """Writes problems that come ordered by code; a code is explained where it first stands."""

    def __init__(self) -> None:
        self._code: str | None = None

    def of(self, problem: ShownProblem) -> Iterator[str]:
        """The lines of the next problem."""
        if problem.code != self._code:
            self._code = problem.code
            yield f"{problem.code}: {meaning_of(problem.code)}"
        remark = f", {problem.remark}" if problem.remark else ""
        yield f"  {problem.count:,} in {problem.where or 'the scan as a whole'}{remark}"
        for sample in problem.samples:
            if sample != NOTHING_KNOWN:
                yield f"    {_sample_words(sample)}"


def meaning_of(code: str) -> str:
    """What a code of a problem or an error means, in a few words."""
    if code in MEANINGS:
        return MEANINGS[code].replace("`", "").replace("[extras](extras.md)", "extras")
    for error in error_classes():
        if error.code == code:
            return str(error().message)
    return "not known to this version"


def _sample_words(sample: ProblemSample) -> str:
    number = f"entry {sample.entry:,}: " if sample.entry is not None else ""
    value = "" if sample.value is None else repr(sample.value)
    return number + "  ".join(part for part in (sample.url, value) if part)
