"""Collects the events of a scan in one dictionary, for callers that do not want a stream."""

from __future__ import annotations

from collections import Counter
from typing import Any, assert_never

from siteatlas.scanner.events import (
    CandidateJudged,
    ChildrenFound,
    DocumentClosed,
    DocumentOpened,
    DocumentRequested,
    EntriesRead,
    EntryColumns,
    ProblemSeen,
    RobotsRead,
    ScanEvent,
    SitemapsSkipped,
    SiteResolved,
)


class ScanSummary:
    """Collects sitemaps and up to `max_urls_per_sitemap` URLs of each."""

    def __init__(self, domain: str, *, keep_urls: bool, max_urls_per_sitemap: int) -> None:
        self._domain = domain
        self._keep_urls = keep_urls
        self._max_urls = max_urls_per_sitemap
        self._sitemaps: dict[str, dict[str, Any]] = {}
        self._kept: Counter[str] = Counter()
        self._urls: list[dict[str, Any]] = []

    def add(self, event: ScanEvent) -> None:
        """Add one event of the scan to the summary."""
        match event:
            case DocumentOpened():
                self._sitemaps[event.url] = {
                    "url": event.url,
                    "sitemap_type": event.type.value,
                    "discovery_method": event.method.value,
                    "parent_url": event.parent_url,
                    "url_count": 0,
                }
            case EntriesRead():
                if self._keep_urls:
                    self._add_entries(event.url, event.columns)
            case DocumentClosed():
                self._close_sitemap(event)
            case RobotsRead() | SiteResolved() | CandidateJudged() | ChildrenFound():
                pass
            case ProblemSeen() | DocumentRequested() | SitemapsSkipped():
                pass
            case _:
                assert_never(event)

    def as_dict(self, error: str | None = None) -> dict[str, Any]:
        """The summary of the scan; contains `error` only if it failed."""
        sitemaps = list(self._sitemaps.values())
        result: dict[str, Any] = {
            "domain": self._domain,
            "sitemaps": sitemaps,
            "total_sitemaps": len(sitemaps),
            "total_urls": sum(sitemap["url_count"] for sitemap in sitemaps),
            "discovery_methods": dict(Counter(one["discovery_method"] for one in sitemaps)),
            "sitemap_types": dict(Counter(one["sitemap_type"] for one in sitemaps)),
            "urls": self._urls,
        }
        if error is not None:
            result["error"] = error
        return result

    def _add_entries(self, sitemap: str, columns: EntryColumns) -> None:
        """Add the entries of a scan event to the summary, up to the limit per sitemap."""
        remaining = self._max_urls - self._kept[sitemap]
        rows = zip(
            columns.urls[: max(remaining, 0)],
            columns.lastmods,
            columns.changefreqs,
            columns.priorities,
            strict=False,
        )
        for url, lastmod, changefreq, priority in rows:
            self._kept[sitemap] += 1
            self._urls.append(
                {
                    "loc": url,
                    "lastmod": lastmod,
                    "changefreq": changefreq,
                    "priority": priority,
                    "source_sitemap": sitemap,
                }
            )

    def _close_sitemap(self, event: DocumentClosed) -> None:
        """Complete a sitemap of the summary, on its last event."""
        sitemap = self._sitemaps.get(event.url)
        if sitemap is not None:
            sitemap |= {
                "url_count": event.entry_count,
                "status": event.outcome.value,
                "error_code": event.error_code,
                "status_code": event.http_status,
                "size_bytes": event.decoded_bytes,
                "response_time": event.seconds,
            }
