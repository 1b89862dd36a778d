"""What a scan without a database found, collected from the scanner's events.

Holds documents, candidates and problems, which are few; URL entries are only counted. Documents are
listed in the order in which they were named, not in the order in which they were read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import assert_never

from siteatlas.errors import AddressError, JobCancelled, SiteatlasError
from siteatlas.net.address import parse_url
from siteatlas.scanner.events import (
    CandidateJudged,
    ChildrenFound,
    DiscoveryMethod,
    DocumentClosed,
    DocumentOpened,
    DocumentOutcome,
    DocumentRequested,
    EntriesRead,
    ProblemSample,
    ProblemSeen,
    RobotsRead,
    ScanEvent,
    SiteResolved,
)

# Documents with samples per code; thousands of documents often have the same problem.
MAX_SAMPLED = 100


@dataclass(frozen=True, slots=True)
class SitemapSeen:
    """One document; the names of the fields are those of the API."""

    url: str
    type: str | None
    discovery_method: str
    status: str
    outcome: str
    url_count: int
    error_code: str | None
    error: str | None
    http_status: int | None
    parent: str | None
    wire_bytes: int
    decoded_bytes: int
    fetch_seconds: float


@dataclass(frozen=True, slots=True)
class CandidateSeen:
    """A place where a sitemap was looked for."""

    url: str
    method: str
    verdict: str
    reason: str | None
    http_status: int | None
    type: str | None


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a document or of the scan; `count` is how often it occurred there."""

    code: str
    url: str | None
    detail: str | None
    count: int = 1
    samples: tuple[ProblemSample, ...] = ()


@dataclass(slots=True)
class ScanReport:
    """The object that `scan --json` prints."""

    site: str
    status: str = "processing"
    error_code: str | None = None
    url_count: int = 0
    partial: bool = False
    reasons: list[str] = field(default_factory=list)
    sitemaps: list[SitemapSeen] = field(default_factory=list)
    candidates: list[CandidateSeen] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def lose(self, code: str) -> None:
        """Something of the site is missing in what was read."""
        self.partial = True
        if code not in self.reasons:
            self.reasons.append(code)

    def fail(self, error: SiteatlasError) -> None:
        """The scan ended without a readable sitemap."""
        self.status, self.error_code = "failed", error.code


@dataclass(slots=True)
class OpenSitemap:
    """A document that is being read."""

    url: str
    type: str
    method: str
    parent: str | None
    http_status: int | None
    url_count: int = 0


class ReadingOrder:
    """The place in the report of every address that robots.txt, an index or a guess named."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def name(self, urls: Iterable[str]) -> None:
        """Add named addresses in this order; one that was named before keeps its place."""
        for url in urls:
            self._places.setdefault(url, len(self._places))

    def redirect(self, requested: str, final: str) -> None:
        """Give the document at the final URL the place of the requested one."""
        self.name([requested])
        self._places.setdefault(final, self._places[requested])

    def sort(self, documents: Sequence[SitemapSeen]) -> list[SitemapSeen]:
        """Every index before its children, and the children in the order of the index."""
        parents = {document.url: document.parent for document in documents}
        return sorted(documents, key=lambda document: self._path(document.url, parents))

    def _path(self, url: str | None, parents: Mapping[str, str | None]) -> list[int]:
        """The places from the root down; a cycle of indexes ends where it would begin again."""
        path: dict[str, int] = {}
        while url is not None and url in parents and url not in path:
            path[url] = self._places.get(url, len(self._places))
            url = parents[url]
        return list(path.values())[::-1]


class ReportBuilder:
    """Turns events into the report, and knows what is under way and still to come."""

    def __init__(self, site: str) -> None:
        self.report = ScanReport(site)
        self.open: dict[str, OpenSitemap] = {}
        self.requested: dict[str, DocumentRequested] = {}
        self.dated_count = 0
        self.robots: RobotsRead | None = None
        self._expected: set[str] = set()
        self._sampled: Counter[str] = Counter()
        self._order = ReadingOrder()

    @property
    def documents_expected(self) -> int:
        """Documents that were opened or announced so far."""
        return max(len(self._expected), len(self.report.sitemaps))

    def observe(self, event: ScanEvent) -> None:
        """Take one event in."""
        match event:
            case EntriesRead():
                self._count_entries(event)
            case DocumentRequested():
                self.requested[event.url] = event
            case DocumentOpened():
                self.requested.pop(event.requested_url, None)
                self.open[event.url] = _open_sitemap(event)
                self._expected.add(event.requested_url)
                self._order.redirect(event.requested_url, event.url)
            case ChildrenFound():
                self._expected.update(child.url for child in event.children)
                self._order.name(child.url for child in event.children)
            case DocumentClosed():
                self._close_document(event)
            case CandidateJudged():
                self.requested.pop(event.url, None)
                self.report.candidates.append(_candidate_seen(event))
            case ProblemSeen():
                self.report.problems.append(Problem(event.code, event.url, event.detail))
                self.report.lose(event.code)
            case RobotsRead():
                self.robots = event
                self._order.name(_addresses(event))
            case SiteResolved():
                pass
            case _:
                assert_never(event)

    def interrupt(self) -> None:
        """Record that the scan was interrupted."""
        self.report.status = "cancelled"
        self.report.lose(JobCancelled.code)
        self.truncate(JobCancelled("The scan was interrupted."))

    def truncate(self, reason: SiteatlasError) -> None:
        """End the report early: open documents count with the entries read so far.

        A requested document without a response is unread, unless it is a guessed path.
        """
        self.report.sitemaps.extend(
            _interrupted_sitemap(opened, reason) for opened in self.open.values()
        )
        self.report.sitemaps.extend(
            _unanswered_request(request, reason)
            for request in self.requested.values()
            if request.method is not DiscoveryMethod.COMMON_PATH
        )
        self.open.clear()
        self.requested.clear()

    def sort_sitemaps(self) -> None:
        """Sort the documents in the order in which they were named, at the end of the scan."""
        self.report.sitemaps = self._order.sort(self.report.sitemaps)

    def _count_entries(self, event: EntriesRead) -> None:
        count = len(event.columns)
        self.report.url_count += count
        self.dated_count += count - event.columns.lastmods.count(None)
        opened = self.open.get(event.url)
        if opened is not None:
            opened.url_count += count

    def _close_document(self, event: DocumentClosed) -> None:
        self.requested.pop(event.requested_url, None)
        self._order.redirect(event.requested_url, event.url)
        opened = self.open.pop(event.url, None)
        parent = event.parent_url or (opened.parent if opened else None)
        url_count = opened.url_count if opened else event.entry_count
        self.report.sitemaps.append(_sitemap_seen(event, parent, url_count))
        if event.outcome in (DocumentOutcome.CUT, DocumentOutcome.UNREAD):
            self.report.lose(event.error_code or event.outcome)
        self.report.problems.extend(
            Problem(code, event.url, None, count, self._samples(event, code))
            for code, count in event.problems.items()
        )

    def _samples(self, event: DocumentClosed, code: str) -> tuple[ProblemSample, ...]:
        """The samples of a problem, for as many documents as memory is spent on."""
        self._sampled[code] += 1
        return event.samples.get(code, ()) if self._sampled[code] <= MAX_SAMPLED else ()


def _addresses(robots: RobotsRead) -> Iterator[str]:
    """The sitemaps of robots.txt, as the URLs that are requested."""
    for url in robots.sitemap_urls:
        with suppress(AddressError):
            yield parse_url(url, robots.url).url


def _candidate_seen(event: CandidateJudged) -> CandidateSeen:
    return CandidateSeen(
        url=event.url,
        method=event.method,
        verdict=event.verdict,
        reason=event.reason,
        http_status=event.http_status,
        type=event.type,
    )


def _open_sitemap(event: DocumentOpened) -> OpenSitemap:
    return OpenSitemap(event.url, event.type, event.method, event.parent_url, event.http_status)


def _unanswered_request(request: DocumentRequested, reason: SiteatlasError) -> SitemapSeen:
    return SitemapSeen(
        url=request.url,
        type=None,
        discovery_method=request.method,
        status="failed",
        outcome=DocumentOutcome.UNREAD,
        url_count=0,
        error_code=reason.code,
        error=reason.message,
        http_status=None,
        parent=request.parent_url,
        wire_bytes=0,
        decoded_bytes=0,
        fetch_seconds=0.0,
    )


def _interrupted_sitemap(sitemap: OpenSitemap, reason: SiteatlasError) -> SitemapSeen:
    return SitemapSeen(
        url=sitemap.url,
        type=sitemap.type,
        discovery_method=sitemap.method,
        status="completed" if sitemap.url_count else "failed",
        outcome=DocumentOutcome.CUT if sitemap.url_count else DocumentOutcome.UNREAD,
        url_count=sitemap.url_count,
        error_code=reason.code,
        error=reason.message,
        http_status=sitemap.http_status,
        parent=sitemap.parent,
        wire_bytes=0,
        decoded_bytes=0,
        fetch_seconds=0.0,
    )


def _sitemap_seen(event: DocumentClosed, parent: str | None, url_count: int) -> SitemapSeen:
    return SitemapSeen(
        url=event.url,
        type=event.type,
        discovery_method=event.method,
        status="failed" if event.outcome is DocumentOutcome.UNREAD else "completed",
        outcome=event.outcome,
        url_count=url_count,
        error_code=event.error_code,
        error=event.error,
        http_status=event.http_status,
        parent=parent,
        wire_bytes=event.wire_bytes,
        decoded_bytes=event.decoded_bytes,
        fetch_seconds=round(event.seconds, 3),
    )
