"""The entry point of the scanner: `SitemapAnalyzer` turns the address of a site into events."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing, suppress
from typing import Any

from siteatlas.errors import SiteatlasError
from siteatlas.net.address import WebAddress, parse_site
from siteatlas.net.client import HttpClient
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.limits import FetchLimits
from siteatlas.net.operator_headers import checked_headers
from siteatlas.net.politeness import Politeness
from siteatlas.net.proxy import Proxy
from siteatlas.net.resolver import DnsResolver, Resolver
from siteatlas.scanner.crawl.document_probe import probe_document
from siteatlas.scanner.crawl.reader_pool import RemoteReaders
from siteatlas.scanner.crawl.site_hosts import SiteHosts
from siteatlas.scanner.crawl.site_scan import SiteScan
from siteatlas.scanner.events import DocumentProbe, ScanEvent
from siteatlas.scanner.options import ScanOptions
from siteatlas.scanner.scan_memory import ScanMemory
from siteatlas.scanner.summary import ScanSummary

__all__ = ["ScanOptions", "SitemapAnalyzer"]

# An event may hold a thousand children or entries, and many scans may have some at the same time.
MAX_QUEUED_EVENTS = 2
USER_AGENT = "Siteatlas (sitemap library)"


class SitemapAnalyzer:
    """Finds and reads the sitemaps of sites. Scans share nothing but politeness.

    Without arguments it contacts public addresses only, at the usual pace. `headers` go only to
    hosts that the policy names as the operator's own.
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
    ) -> None:
        self._policy = EgressPolicy() if policy is None else policy
        self._politeness = Politeness() if politeness is None else politeness
        self._user_agent = user_agent
        self._limits = limits
        self._resolver = DnsResolver() if resolver is None else resolver
        self._headers = checked_headers(headers or {})
        self._tls = tls
        self._proxy = proxy

    async def scan(
        self,
        site: WebAddress,
        options: ScanOptions = ScanOptions(),
        memory: ScanMemory = ScanMemory(),
        readers: RemoteReaders | None = None,
    ) -> AsyncGenerator[ScanEvent, None]:
        """Scan a site; raises the most specific error if no sitemap could be read.

        A slow consumer of the events slows down the reading. Closing the iterator cancels the scan.
        `readers` may read documents of a scan that has no URL limit and no memory.
        """
        events: asyncio.Queue[ScanEvent | None] = asyncio.Queue(MAX_QUEUED_EVENTS)
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
        self, site: WebAddress, urls: Iterable[str]
    ) -> AsyncGenerator[DocumentProbe, None]:
        """Request documents of a site one after another without reading them."""
        async with self._create_client(site) as client:
            client.on_redirect = SiteHosts(site.host).follow_redirect
            for url in urls:
                yield await probe_document(client, url)

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
        events: asyncio.Queue[ScanEvent | None],
        readers: RemoteReaders | None,
    ) -> None:
        """Run one scan and put its events on the queue, with None at the end."""
        scan = SiteScan(
            site,
            options=options,
            memory=memory,
            open_client=self._create_client,
            politeness=self._politeness,
            user_agent=self._user_agent,
            emit=events.put,
            readers=readers,
        )
        try:
            await scan.run()
        finally:
            # After a cancellation nothing reads the events, and a full queue would block forever.
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                await events.put(None)

    def _create_client(self, base: WebAddress) -> HttpClient:
        """The HTTP client for a scan, from the arguments of `SitemapAnalyzer`."""
        return HttpClient(
            self._policy.for_site(base),
            self._politeness,
            user_agent=self._user_agent,
            limits=self._limits,
            resolver=self._resolver,
            headers=self._headers,
            tls=self._tls,
            proxy=self._proxy,
        )
