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
    SitemapsSkipped,
    SiteResolved,
)


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
    """An address where a sitemap was looked for."""

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
    """The object that `scan --json` prints.

    `skipped_sitemaps` counts the children of indexes that the filter of the scan left out; None
    without a filter.
    """

    site: str
    status: str = "processing"
    error_code: str | None = None
    url_count: int = 0
    partial: bool = False
    reasons: list[str] = field(default_factory=list)
    sitemaps: list[SitemapSeen] = field(default_factory=list)
    candidates: list[CandidateSeen] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    skipped_sitemaps: dict[str, int] | None = None

    def lose(self, code: str) -> None:
        """Mark the scan report as partial; the code says why."""
        self.partial = True
        if code not in self.reasons:
            self.reasons.append(code)

    def fail(self, error: SiteatlasError) -> None:
        """Mark the scan report as failed: no sitemap could be read."""
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


class ReportOrder:
    """The place in the report of every address that robots.txt, an index or a guess named."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def add_urls(self, urls: Iterable[str]) -> None:
        """Give URLs the next places in the scan report; one that has a place keeps it."""
        for url in urls:
            self._places.setdefault(url, len(self._places))

    def add_redirect(self, requested: str, final: str) -> None:
        """Give the final URL of a redirect the place of the requested one in the scan report."""
        self.add_urls([requested])
        self._places.setdefault(final, self._places[requested])

    def sort_documents(self, documents: Sequence[SitemapSeen]) -> list[SitemapSeen]:
        """The documents of a scan report, each index followed by its children in listed order."""
        parents = {document.url: document.parent for document in documents}
        return sorted(documents, key=lambda document: self._sort_key(document.url, parents))

    def _sort_key(self, url: str | None, parents: Mapping[str, str | None]) -> list[int]:
        """The sort key in the scan report: the places of all ancestors, then its own.

        A cycle of indexes ends where it would begin again.
        """
        path: dict[str, int] = {}
        while url is not None and url in parents and url not in path:
            path[url] = self._places.get(url, len(self._places))
            url = parents[url]
        return list(path.values())[::-1]


class ReportBuilder:
    """Builds the report from events, and tracks which documents are open or still expected."""

    def __init__(self, site: str) -> None:
        self.report = ScanReport(site)
        self.open: dict[str, OpenSitemap] = {}
        self.requested: dict[str, DocumentRequested] = {}
        self.dated_count = 0
        self.robots: RobotsRead | None = None
        self._expected: set[str] = set()
        self._sampled: Counter[str] = Counter()
        self._order = ReportOrder()

    @property
    def documents_expected(self) -> int:
        """Documents that the events of the scan have opened or listed so far."""
        return max(len(self._expected), len(self.report.sitemaps))

    def observe(self, event: ScanEvent) -> None:
        """Add one event of the scan to the report."""
        match event:
            case EntriesRead():
                self._count_entries(event)
            case DocumentRequested():
                self.requested[event.url] = event
            case DocumentOpened():
                self.requested.pop(event.requested_url, None)
                self.open[event.url] = _open_sitemap(event)
                self._expected.add(event.requested_url)
                self._order.add_redirect(event.requested_url, event.url)
            case ChildrenFound():
                self._expected.update(child.url for child in event.children)
                self._order.add_urls(child.url for child in event.children)
            case DocumentClosed():
                self._add_closed_document(event)
            case CandidateJudged():
                self.requested.pop(event.url, None)
                self.report.candidates.append(_candidate_seen(event))
            case ProblemSeen() | SitemapsSkipped():
                self._add_problem(event)
            case RobotsRead():
                self.robots = event
                self._order.add_urls(_robots_sitemaps(event))
            case SiteResolved():
                pass
            case _:
                assert_never(event)

    def interrupt(self) -> None:
        """Record in the report that the scan was interrupted."""
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
            _unread_sitemap(request, reason)
            for request in self.requested.values()
            if request.method is not DiscoveryMethod.COMMON_PATH
        )
        self.open.clear()
        self.requested.clear()

    def sort_sitemaps(self) -> None:
        """Sort the documents in the order in which they were named, at the end of the scan."""
        self.report.sitemaps = self._order.sort_documents(self.report.sitemaps)

    def _count_entries(self, event: EntriesRead) -> None:
        count = len(event.columns)
        dated = count - event.columns.lastmods.count(None)
        if event.encoded is not None:
            count += event.encoded.kept
            dated += event.encoded.dated
        self.report.url_count += count
        self.dated_count += dated
        opened = self.open.get(event.url)
        if opened is not None:
            opened.url_count += count

    def _add_closed_document(self, event: DocumentClosed) -> None:
        self.requested.pop(event.requested_url, None)
        self._order.add_redirect(event.requested_url, event.url)
        opened = self.open.pop(event.url, None)
        parent = event.parent_url or (opened.parent if opened else None)
        url_count = opened.url_count if opened else event.entry_count
        self.report.sitemaps.append(_closed_sitemap(event, parent, url_count))
        if event.outcome in (DocumentOutcome.CUT, DocumentOutcome.UNREAD):
            self.report.lose(event.error_code or event.outcome)
        self.report.problems.extend(
            Problem(code, event.url, None, count, self._samples(event, code))
            for code, count in event.problems.items()
        )

    def _add_problem(self, event: ProblemSeen | SitemapsSkipped) -> None:
        if isinstance(event, SitemapsSkipped):
            self.report.skipped_sitemaps = event._asdict()
            return
        self.report.problems.append(Problem(event.code, event.url, event.detail))
        self.report.lose(event.code)

    def _samples(self, event: DocumentClosed, code: str) -> tuple[ProblemSample, ...]:
        self._sampled[code] += 1
        # Documents with samples per code; thousands of documents often have the same problem.
        return event.samples.get(code, ()) if self._sampled[code] <= 100 else ()


def _robots_sitemaps(robots: RobotsRead) -> Iterator[str]:
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


def _unread_sitemap(request: DocumentRequested, reason: SiteatlasError) -> SitemapSeen:
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


def _closed_sitemap(event: DocumentClosed, parent: str | None, url_count: int) -> SitemapSeen:
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
