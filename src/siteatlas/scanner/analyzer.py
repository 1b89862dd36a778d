"""The entry point of the scanner: `SitemapAnalyzer` turns the address of a site into events."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing, suppress
from typing import Any, assert_never

from siteatlas.errors import SiteatlasError
from siteatlas.net.address import WebAddress, parse_site
from siteatlas.net.client import HttpClient, Politeness
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.gate import Gate, OriginHeaders, Proxy, Resolver
from siteatlas.net.response import FetchLimits
from siteatlas.scanner.crawl.document import SiteHosts
from siteatlas.scanner.crawl.readers import RemoteReaders
from siteatlas.scanner.crawl.site_scan import SiteScan, probe_document
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
from siteatlas.scanner.options import NOTHING_KNOWN, ScanMemory, ScanOptions


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


class EventQueue(asyncio.Queue[ScanEvent | None]):
    """The events that wait for the consumer of a scan: few, for many scans run at a time.

    Of those with children or entries, of which there may be a thousand, at most two.
    """

    _large = 0

    def full(self) -> bool:
        """Whether the scan has to wait before it reports more."""
        return self._large >= 2 or self.qsize() >= 16

    def _put(self, item: ScanEvent | None) -> None:
        self._large += isinstance(item, (ChildrenFound, EntriesRead))
        super()._put(item)

    def _get(self) -> ScanEvent | None:
        item: ScanEvent | None = super()._get()
        self._large -= isinstance(item, (ChildrenFound, EntriesRead))
        return item


__all__ = ["ScanOptions", "SitemapAnalyzer"]

USER_AGENT = "Siteatlas (sitemap library)"


class SitemapAnalyzer:
    """Finds and reads the sitemaps of sites. Its scans share one HTTP client, each with the policy
    and the headers of its site.

    Without arguments it contacts public addresses only, at the usual pace. `headers` go only to
    hosts that the policy names as the operator's own. Analyzers that share a `gate` share
    connections and lookups.
    """

    def __init__(
        self,
        policy: EgressPolicy | None = None,
        politeness: Politeness | None = None,
        *,
        user_agent: str = USER_AGENT,
        limits: FetchLimits = FetchLimits(),
        resolver: Resolver | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        proxy: Proxy | None = None,
        gate: Gate | None = None,
    ) -> None:
        self._client = HttpClient(
            EgressPolicy() if policy is None else policy,
            Politeness() if politeness is None else politeness,
            user_agent=user_agent,
            limits=limits,
            resolver=resolver,
            headers=headers,
            tls=tls,
            proxy=proxy,
            gate=gate,
        )

    async def scan(
        self,
        site: WebAddress,
        options: ScanOptions = ScanOptions(),
        memory: ScanMemory = NOTHING_KNOWN,
        readers: RemoteReaders | None = None,
    ) -> AsyncGenerator[ScanEvent, None]:
        """Scan a site; raises the most specific error if no sitemap could be read.

        A slow consumer of the events slows down the reading. Closing the iterator cancels the scan.
        `readers` may read documents of a scan that has no URL limit and no memory.
        """
        events = EventQueue()
        scan = asyncio.create_task(self._run_scan(site, options, memory, events, readers))
        try:
            while (event := await events.get()) is not None:
                yield event
            await scan
        finally:
            scan.cancel()
            with suppress(asyncio.CancelledError, SiteatlasError):
                await scan

    async def probe_documents(
        self, site: WebAddress, urls: Iterable[str], headers: OriginHeaders | None = None
    ) -> AsyncGenerator[tuple[str, str | SiteatlasError], None]:
        """Request documents of a site one after another without reading them.

        Yields each address with that after redirects, or with the error of the document.
        """
        on_redirect = SiteHosts(site.host).follow_redirect
        client = self._client.for_site(site, headers=headers, on_redirect=on_redirect)
        async with client:
            try:
                for url in urls:
                    yield url, await probe_document(client, url)
            finally:
                client.close_idle()

    async def analyze_domain_sitemaps(
        self,
        domain: str,
        follow_robots_txt: bool = True,
        extract_urls: bool = True,
        max_urls_per_sitemap: int = 10_000,
    ) -> dict[str, Any]:
        """Scan a site and return everything at once; an error is reported in `error`."""
        summary = ScanSummary(
            domain, keep_urls=extract_urls, max_urls_per_sitemap=max_urls_per_sitemap
        )
        options = ScanOptions(robots_sitemaps=follow_robots_txt)
        try:
            async with aclosing(self.scan(parse_site(domain), options)) as events:
                async for event in events:
                    summary.add(event)
        except SiteatlasError as error:
            return summary.as_dict(error.message)
        return summary.as_dict()

    async def _run_scan(
        self,
        site: WebAddress,
        options: ScanOptions,
        memory: ScanMemory,
        events: EventQueue,
        readers: RemoteReaders | None,
    ) -> None:
        scan = SiteScan(
            site,
            options=options,
            memory=memory,
            client=self._client,
            emit=events.put,
            readers=readers,
        )
        try:
            async with self._client:
                await scan.run()
        finally:
            # After a cancellation nothing reads the events, and a full queue would block forever.
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                await events.put(None)
