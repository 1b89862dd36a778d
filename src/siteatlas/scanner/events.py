"""The events that a scan yields.

With `options.py`, this is the interface between the scanner and its users: the processor, the
command line and library users. Order per document: opened, then entries or children, then closed.
Events are named tuples, whose classes are created five times as fast as those of frozen
dataclasses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import compress
from types import MappingProxyType
from typing import Any, NamedTuple


class SitemapType(StrEnum):
    """What a document is. Images, videos and news are flags of entries, not types."""

    STANDARD = "standard"
    INDEX = "index"
    TEXT = "text"
    RSS = "rss"
    ATOM = "atom"


class DiscoveryMethod(StrEnum):
    """How a document was discovered."""

    ROBOTS_TXT = "robots_txt"
    COMMON_PATH = "common_path"
    SITEMAP_INDEX = "sitemap_index"
    HTML_LINK = "html_link"
    HTTP_HEADER = "http_header"
    MANUAL = "manual"


class Verdict(StrEnum):
    """The verdict on a candidate."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    SKIPPED = "skipped"


class DocumentOutcome(StrEnum):
    """How the reading of a document ended.

    `complete`: read to the end. `unchanged`: the same as at the last complete read, see
    `UnchangedBy`. `cut`: only the first entries could be read. `unread`: nothing usable was read.
    """

    COMPLETE = "complete"
    UNCHANGED = "unchanged"
    CUT = "cut"
    UNREAD = "unread"

    @property
    def is_read(self) -> bool:
        """Whether the content is usable, even if it is empty, unchanged or incomplete."""
        return self is not DocumentOutcome.UNREAD


class UnchangedBy(StrEnum):
    """How a document was found to be unchanged.

    `not_modified`: the site responded with 304. `content_hash`: the bytes are those of the last
    complete read.
    """

    NOT_MODIFIED = "not_modified"
    CONTENT_HASH = "content_hash"


class Validators(NamedTuple):
    """The validators of a response, for a conditional request."""

    etag: str | None = None
    last_modified: str | None = None


class ChildLink(NamedTuple):
    """One entry of a sitemap index."""

    url: str
    lastmod: datetime | None = None


@dataclass(frozen=True, slots=True)
class ProblemSample:
    """One example of a problem in a document.

    `url` is the page, `value` what was listed, both truncated; `entry` counts from 1.
    """

    url: str | None = None
    value: str | None = None
    entry: int | None = None


@dataclass(slots=True)
class EntryColumns:
    """URL entries column by column; all lists have the same length.

    `lastmod_texts` are the dates as listed, "" if absent or if `lastmods` holds the same
    information (see `reading/entries.py`). Only this list may be empty.
    """

    urls: list[str] = field(default_factory=list)
    lastmods: list[datetime | None] = field(default_factory=list)
    changefreqs: list[str | None] = field(default_factory=list)
    priorities: list[float | None] = field(default_factory=list)
    extras: list[dict[str, Any] | None] = field(default_factory=list)
    lastmod_texts: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.urls)

    def extend(self, more: EntryColumns) -> None:
        """Append the entries of another event of the same document."""
        if more.lastmod_texts or self.lastmod_texts:
            self.lastmod_texts = [*self.listed_lastmods(), *more.listed_lastmods()]
        self.urls += more.urls
        self.lastmods += more.lastmods
        self.changefreqs += more.changefreqs
        self.priorities += more.priorities
        self.extras += more.extras

    def head(self, count: int) -> EntryColumns:
        """The first entries of this event; the same object if there are no more than `count`."""
        if count >= len(self):
            return self
        return EntryColumns(
            self.urls[:count],
            self.lastmods[:count],
            self.changefreqs[:count],
            self.priorities[:count],
            self.extras[:count],
            self.lastmod_texts[:count],
        )

    def where(self, mask: Iterable[bool]) -> EntryColumns:
        """The entries of this event for which the mask is true, in order."""
        wanted = list(mask)
        return EntryColumns(
            list(compress(self.urls, wanted)),
            list(compress(self.lastmods, wanted)),
            list(compress(self.changefreqs, wanted)),
            list(compress(self.priorities, wanted)),
            list(compress(self.extras, wanted)),
            list(compress(self.lastmod_texts, wanted)),
        )

    def rows(self, *more: Iterable[object]) -> Iterator[tuple[Any, ...]]:
        """The entries of this event as tuples; values of `more` are added to each.

        Their order is URL, lastmod, changefreq, priority, extras.
        """
        return zip(
            self.urls,
            self.lastmods,
            self.changefreqs,
            self.priorities,
            self.extras,
            *more,
            strict=True,
        )

    def listed_lastmods(self) -> list[str]:
        """The lastmod texts of this event as listed, one for each entry."""
        return self.lastmod_texts or [""] * len(self.urls)


class EncodedEntries(NamedTuple):
    """Entries in the output format of the caller: `kept` of the `found` ones, `dated` of these.

    `undated` are those that its filter left out because they have no date.
    """

    data: bytes
    found: int
    kept: int
    dated: int
    undated: int = 0


class RobotsRead(NamedTuple):
    """robots.txt was requested; `http_status` is None if there was no response.

    `text` is its content as it can be stored, None unless the status is 200; `truncated`: only the
    first 500 KiB.
    """

    url: str
    http_status: int | None
    sitemap_urls: tuple[str, ...]
    crawl_delay: float | None = None
    error_code: str | None = None
    text: str | None = None
    truncated: bool = False


class CandidateJudged(NamedTuple):
    """The verdict on a candidate; `reason` is a code.

    `final_url` is where it redirects to, None without a redirect. With the reason `duplicate`, it
    is a document that this scan reads under that address.
    """

    url: str
    method: DiscoveryMethod
    verdict: Verdict
    reason: str | None = None
    http_status: int | None = None
    type: SitemapType | None = None
    final_url: str | None = None


class DocumentRequested(NamedTuple):
    """A document was requested. Followed by DocumentOpened, DocumentClosed or CandidateJudged."""

    url: str
    method: DiscoveryMethod
    parent_url: str | None = None


class DocumentOpened(NamedTuple):
    """A document was found to be a sitemap. `url` is its address after redirects, which identifies
    it in all later events; `requested_url` is the address requested first.
    """

    url: str
    requested_url: str
    method: DiscoveryMethod
    type: SitemapType
    parent_url: str | None
    depth: int
    http_status: int | None
    listed_lastmod: datetime | None = None


class EntriesRead(NamedTuple):
    """URL entries of a document, as listed, in document order; a few hundred at a time.

    Those that a reader process has `encoded` have no columns; a caller that starts no such
    processes gets none.
    """

    url: str
    columns: EntryColumns
    encoded: EncodedEntries | None = None

    @property
    def entry_count(self) -> int:
        """How many entries there are, read or encoded."""
        return len(self.columns) + (self.encoded.found if self.encoded else 0)


class ChildrenFound(NamedTuple):
    """Children that an index lists."""

    url: str
    children: tuple[ChildLink, ...]


class DocumentClosed(NamedTuple):
    """The reading of a document ended.

    A document that never opened (unreachable, not a sitemap) closes as `unread` without an opened
    event and under the requested address, wherever that redirects to; `method` and `parent_url`
    then tell how it was discovered. An `unchanged` one does not open either; `unchanged_by` says
    why it is, and the children that are known of an index have been followed. Validators and hash
    are only set if the outcome is `complete` or `unchanged`. `problems` counts repairs and skipped
    entries by code; `samples` are examples for some of these codes.

    `is_window`: it lists only recent entries (a feed, news, a ResourceSync change list), so that an
    entry that it no longer lists has expired; False for an unchanged document, which was not read.
    `proves_removals` is False if the end of a complete document may have been lost unnoticed, or if
    the filter of the scan left out children of an index, so that only what was reported of it is
    certain; it then has no validators and no hash.
    `validators_lied`: the validators are those of the last complete read, but the content differs.
    """

    url: str
    requested_url: str
    outcome: DocumentOutcome
    method: DiscoveryMethod
    type: SitemapType | None = None
    parent_url: str | None = None
    error_code: str | None = None
    error: str | None = None
    http_status: int | None = None
    entry_count: int = 0
    skipped_count: int = 0
    wire_bytes: int = 0
    decoded_bytes: int = 0
    seconds: float = 0.0
    validators: Validators = Validators()
    content_hash: str | None = None
    problems: Mapping[str, int] = MappingProxyType({})
    samples: Mapping[str, tuple[ProblemSample, ...]] = MappingProxyType({})
    unchanged_by: UnchangedBy | None = None
    is_window: bool = False
    proves_removals: bool = True
    validators_lied: bool = False


class ProblemSeen(NamedTuple):
    """A problem of the scan as a whole, such as a limit that was reached."""

    code: str
    url: str | None = None
    detail: str | None = None


class SitemapsSkipped(NamedTuple):
    """How many children of indexes the filter of the scan left out; at the end of such a scan.

    After a restart of the scan, those that are listed by documents read before are not counted.
    """

    by_address: int = 0
    by_date: int = 0


class SiteResolved(NamedTuple):
    """The origin that serves the site, such as `https://www.example.com`, and its IP address."""

    origin: str
    ip: str | None = None


ScanEvent = (
    RobotsRead
    | SiteResolved
    | CandidateJudged
    | DocumentRequested
    | DocumentOpened
    | EntriesRead
    | ChildrenFound
    | DocumentClosed
    | ProblemSeen
    | SitemapsSkipped
)

# Receives an event; waits while the consumer is behind.
Emit = Callable[[ScanEvent], Awaitable[None]]
