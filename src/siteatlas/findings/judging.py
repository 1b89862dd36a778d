"""What judges make: findings with their samples, collected per document and rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import xxhash

from siteatlas.findings.rules import Rule, all_rules
from siteatlas.scanner.reading.entries import MAX_SAMPLES

# The base of relative URLs in a local file, which has none. It is not shown.
NO_ADDRESS = "https://sitemap.invalid/"


@dataclass(frozen=True, slots=True)
class Sample:
    """One example: the URL of the entry and the value in question, both as listed.

    `again` counts the earlier entries with this URL. Line and column begin at 1 and are set where
    the text of the document is at hand.
    """

    url: str | None = None
    value: str | None = None
    again: int = 0
    line: int | None = None
    column: int | None = None

    @property
    def text(self) -> str | None:
        """What is shown of it."""
        return self.url if self.value is None else self.value


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a document breaks, once for all places in it; `detail` has its figures."""

    code: str
    document: str
    count: int
    samples: tuple[Sample, ...] = ()
    detail: str = ""

    @property
    def rule(self) -> Rule:
        return all_rules()[self.code]

    @property
    def fingerprint(self) -> str:
        """The same as long as rule, document and first sample are, wherever that moves to."""
        first = self.samples[0] if self.samples else Sample()
        parts = (self.code, self.document, first.url or "", first.value or "")
        return xxhash.xxh3_64_hexdigest("\0".join(parts).encode("utf-8", "replace"))


@dataclass(slots=True)
class _Note:
    count: int = 0
    samples: list[Sample] = field(default_factory=list)
    detail: str = ""


class Notes:
    """The findings of one document while it is judged."""

    def __init__(self, document: str) -> None:
        self.document = document
        self._notes: dict[str, _Note] = {}

    def __contains__(self, code: str) -> bool:
        return code in self._notes

    def add(
        self,
        code: str,
        samples: Iterable[Sample] = (),
        *,
        count: int | None = None,
        detail: str = "",
    ) -> None:
        """Count a fault; `count` if there are more than these samples."""
        note = self._notes.setdefault(code, _Note())
        given = list(samples)
        note.count += len(given) or 1 if count is None else count
        for sample in map(_as_listed, given):
            if len(note.samples) < MAX_SAMPLES and sample not in note.samples:
                note.samples.append(sample)
        note.detail = note.detail or detail

    def is_full(self, code: str) -> bool:
        """Whether another sample of this fault would not be kept."""
        return code in self._notes and len(self._notes[code].samples) >= MAX_SAMPLES

    def add_places(self, code: str, places: Sequence[int], urls: Sequence[str]) -> None:
        """Count these of the entries."""
        if places:
            samples = [Sample(urls[place]) for place in places[:MAX_SAMPLES]]
            self.add(code, samples, count=len(places))

    def findings(self) -> list[Finding]:
        """What was found, in the order of the rules."""
        return [
            Finding(code, self.document, note.count, tuple(note.samples), note.detail)
            for code in all_rules()
            if (note := self._notes.get(code)) is not None
        ]


def _as_listed(sample: Sample) -> Sample:
    if sample.url is None or not sample.url.startswith(NO_ADDRESS):
        return sample
    return replace(sample, url=sample.url[len(NO_ADDRESS) - 1 :])


def share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,}"


def age_in_days(moment: datetime, now: datetime) -> float:
    return (now - moment).total_seconds() / 86_400
