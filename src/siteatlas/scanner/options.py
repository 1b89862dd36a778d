"""The options of a scan."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import translate
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from siteatlas.errors import InputError
from siteatlas.scanner.events import ChildLink, SitemapType, Validators
from siteatlas.scanner.problem_codes import ProblemCode

if TYPE_CHECKING:
    # A local file is read without the network.
    from siteatlas.net.gate import OriginHeaders

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


MAX_DOCUMENTS = 10_000

# How hard to look for sitemaps that nothing names.
Probe = Literal["quick", "auto", "full"]


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """Choices for one scan.

    `max_urls` counts URLs over all documents, `urls_done` those that an earlier attempt at this
    scan has stored. `only_document` scans exactly that sitemap and its children.
    `manual_documents` are sitemaps that a person named earlier; they are read in addition to what
    the site names. `robots_sitemaps` False passes over the Sitemap lines of robots.txt.
    `child_filter` chooses which children of indexes are read. `headers` go to one origin.
    `find_duplicates` notes URLs that a document lists twice, for about a fifteenth more time;
    the recorder knows already. `on_text` is given the final address of a document with each part of
    its decoded text, which is read in this process then.
    """

    max_urls: int | None = None
    probe: Probe = "auto"
    max_documents: int = MAX_DOCUMENTS
    max_depth: int = 5
    documents_in_flight: int = 4
    robots_unreachable: Literal["retry", "proceed"] = "retry"
    only_document: str | None = None
    manual_documents: tuple[str, ...] = ()
    urls_done: int = 0
    robots_sitemaps: bool = True
    find_duplicates: bool = False
    child_filter: ChildFilter | None = None
    headers: OriginHeaders | None = None
    on_text: Callable[[str, str], None] | None = None


class KnownDocument(NamedTuple):
    """What the caller knows of a document before the scan.

    `url` is its final address, also if it is known by the requested one. `done` documents were
    finished earlier in this same scan: they are not fetched again, their `children` still are.

    The rest is of the last complete read. `validators` allow a conditional request unless
    `may_send_validators` is False; then they only show whether they lied. A document with the same
    `content_hash` is unchanged; another `content_length` (bytes as received) shows at once that it
    is not. An unchanged index yields its `children`; an unchanged document counts with its
    `entry_count` towards the URL limit of the scan and has this `type`.
    """

    url: str
    done: bool = False
    validators: Validators = Validators()
    children: tuple[ChildLink, ...] = ()
    content_hash: str | None = None
    content_length: int | None = None
    may_send_validators: bool = True
    entry_count: int = 0
    type: SitemapType | None = None


# The documents known before the scan, by requested URL and by final URL.
ScanMemory = Mapping[str, KnownDocument]
NOTHING_KNOWN: ScanMemory = MappingProxyType({})
