"""Which children of an index a scan requests: chosen by address and date, before they are fetched.

The filter applies to the children of every index, also to those that are indexes themselves. The
documents that robots.txt, a user or a guess names are always read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import translate
from functools import lru_cache
from typing import Any

from siteatlas.errors import InputError
from siteatlas.scanner.problem_codes import ProblemCode

MAX_PATTERNS = 20
MAX_PATTERN_CHARS = 200


@dataclass(frozen=True, slots=True)
class ChildFilter:
    """Requests children that match one of `include`, if any, and none of `exclude`.

    Of the children with a `lastmod`, only those changed on or after `since`: without a date nothing
    says that a document is old.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    since: datetime | None = None

    @classmethod
    def of(
        cls,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        since: datetime | None = None,
    ) -> ChildFilter | None:
        """The filter of a request, None if it requests everything; InputError if it is invalid."""
        if since is not None and since.tzinfo is None:
            since = since.replace(tzinfo=UTC)
        wanted = cls(tuple(include or ()), tuple(exclude or ()), since)
        for patterns in (wanted.include, wanted.exclude):
            if len(patterns) > MAX_PATTERNS:
                raise InputError(f"At most {MAX_PATTERNS} patterns for sitemaps are allowed.")
            if any(not 0 < len(pattern) <= MAX_PATTERN_CHARS for pattern in patterns):
                raise InputError(
                    f"A pattern for sitemaps must have 1 to {MAX_PATTERN_CHARS} characters."
                )
        return wanted if wanted != cls() else None

    @classmethod
    def stored(cls, data: object) -> ChildFilter | None:
        """The filter that `as_dict` returned as `data`; None if that is no filter."""
        if not isinstance(data, Mapping):
            return None
        since = data.get("since")
        return cls(
            tuple(data.get("include", ())),
            tuple(data.get("exclude", ())),
            datetime.fromisoformat(since) if since else None,
        )

    def as_dict(self) -> dict[str, Any]:
        """The filter in types that JSON has; equal filters give equal results."""
        since = self.since.astimezone(UTC).isoformat() if self.since else None
        return {"include": sorted(self.include), "exclude": sorted(self.exclude), "since": since}

    def refusal(self, url: str, lastmod: datetime | None) -> ProblemCode | None:
        """Why a child is not requested; None if it is."""
        wanted, unwanted = _compiled(self.include), _compiled(self.exclude)
        if (wanted and not wanted.match(url)) or (unwanted and unwanted.match(url)):
            return ProblemCode.FILTERED_ADDRESS
        if self.since is not None and lastmod is not None and lastmod < self.since:
            return ProblemCode.FILTERED_DATE
        return None


@lru_cache(maxsize=64)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str] | None:
    """The expression for one of the two lists of patterns of a child filter."""
    return any_of_patterns(patterns)


def any_of_patterns(patterns: Sequence[str]) -> re.Pattern[str] | None:
    """One expression for what any of the patterns matches: `*`, `?` and `[…]` over the whole URL.

    It takes time in proportion to the length of the URL times that of the patterns, since `fnmatch`
    makes an atomic group of each `*` but the last. None if there are no patterns.
    """
    return re.compile("|".join(map(translate, patterns))) if patterns else None
