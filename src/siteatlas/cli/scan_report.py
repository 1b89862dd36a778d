"""What a scan without a database found, collected from the scanner's events.

Holds documents, candidates and problems, which are few; URL entries are only counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from siteatlas.errors import SiteatlasError
from siteatlas.scanner.events import (
    CandidateJudged,
    ChildrenFound,
    DocumentClosed,
    DocumentOpened,
    DocumentOutcome,
    EntriesRead,
    ProblemSeen,
    ScanEvent,
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
    """A place where a sitemap was looked for."""

    url: str
    method: str
    verdict: str
    reason: str | None
    http_status: int | None
    type: str | None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that a person should know; `count` is how often it happened in this document."""

    code: str
    url: str | None
    detail: str | None
    count: int = 1


@dataclass(slots=True)
class ScanReport:
    """The object that `scan --json` prints."""

    site: str
    status: str = "processing"
    error_code: str | None = None
    url_count: int = 0
    sitemaps: list[SitemapSeen] = field(default_factory=list)
    candidates: list[CandidateSeen] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def fail(self, error: SiteatlasError) -> None:
        """The scan ended without a readable sitemap."""
        self.status, self.error_code = "failed", error.code


class ReportKeeper:
    """Turns events into the report, and knows how many documents are still to come."""

    def __init__(self, site: str) -> None:
        self.report = ScanReport(site)
        self._parents: dict[str, str | None] = {}
        self._expected: set[str] = set()

    @property
    def documents_expected(self) -> int:
        """Documents that were opened or announced so far."""
        return max(len(self._expected), len(self.report.sitemaps))

    def observe(self, event: ScanEvent) -> None:
        """Take one event in."""
        match event:
            case EntriesRead():
                self.report.url_count += len(event.columns)
            case DocumentOpened():
                self._parents[event.url] = event.parent_url
                self._expected.add(event.requested_url)
            case ChildrenFound():
                self._expected.update(child.url for child in event.children)
            case DocumentClosed():
                self._close(event)
            case CandidateJudged():
                self.report.candidates.append(_candidate(event))
            case ProblemSeen():
                self.report.problems.append(Problem(event.code, event.url, event.detail))
            case _:
                pass

    def _close(self, event: DocumentClosed) -> None:
        parent = event.parent_url or self._parents.pop(event.url, None)
        self.report.sitemaps.append(_sitemap(event, parent))
        self.report.problems.extend(
            Problem(code, event.url, None, count) for code, count in event.problems.items()
        )


def _candidate(event: CandidateJudged) -> CandidateSeen:
    return CandidateSeen(
        url=event.url,
        method=event.method,
        verdict=event.verdict,
        reason=event.reason,
        http_status=event.http_status,
        type=event.type,
    )


def _sitemap(event: DocumentClosed, parent: str | None) -> SitemapSeen:
    return SitemapSeen(
        url=event.url,
        type=event.type,
        discovery_method=event.method,
        status="failed" if event.outcome is DocumentOutcome.UNREAD else "completed",
        outcome=event.outcome,
        url_count=event.entry_count,
        error_code=event.error_code,
        error=event.error,
        http_status=event.http_status,
        parent=parent,
        wire_bytes=event.wire_bytes,
        decoded_bytes=event.decoded_bytes,
        fetch_seconds=round(event.seconds, 3),
    )
