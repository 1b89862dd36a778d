"""One scan of one site, from its origin to its last document: the order of all steps.

Sends events to its listener and raises the most specific error if no sitemap could be read.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

from siteatlas.errors import (
    AddressError,
    EgressDenied,
    RateLimited,
    RobotsUnreachable,
    ScanError,
    SiteatlasError,
    Timeout,
)
from siteatlas.logs import get_logger
from siteatlas.net.address import WebAddress, bare_host, parse_url
from siteatlas.net.client import HttpClient
from siteatlas.net.politeness import Politeness
from siteatlas.scanner.crawl.crawl import Crawl
from siteatlas.scanner.crawl.origin_search import GuessBudget, OriginSearch
from siteatlas.scanner.crawl.reader_pool import RemoteReaders
from siteatlas.scanner.crawl.reasons import most_specific_error
from siteatlas.scanner.discovery.origins import (
    TRY_NEXT_ORIGIN_ERRORS,
    candidate_origins,
    is_worth_trying,
    other_host,
)
from siteatlas.scanner.discovery.probes import RobotsResult, fetch_robots
from siteatlas.scanner.events import DiscoveryMethod, Emit, RobotsRead, SiteResolved
from siteatlas.scanner.options import ScanOptions
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.scan_memory import ScanMemory

log = get_logger("scanner")

OpenClient = Callable[[WebAddress], HttpClient]


class SiteScan:
    """Everything that one scan needs while it runs; `run` is called once."""

    def __init__(
        self,
        site: WebAddress,
        *,
        options: ScanOptions,
        memory: ScanMemory,
        open_client: OpenClient,
        politeness: Politeness,
        user_agent: str,
        emit: Emit,
        readers: RemoteReaders | None = None,
    ) -> None:
        self._site = site
        self._options = options
        self._client_factory = open_client
        self._politeness = politeness
        self._user_agent = user_agent
        self._emit = emit
        self._crawl = Crawl(site, options, memory, emit, readers)
        self._guesses = GuessBudget()
        self._home_error: SiteatlasError | None = None

    async def run(self) -> None:
        """Scan the site; raises when not one document could be read."""
        if self._options.child_filter is not None:
            await self._crawl.report_problem(ProblemCode.SITEMAPS_FILTERED)
        async with AsyncExitStack() as stack:
            if self._options.only_document is not None:
                await self._scan_one_document(self._options.only_document, stack)
            else:
                await self._scan_site(stack)
        if self._options.child_filter is not None:
            await self._emit(self._crawl.skipped_sitemaps())
        if not self._crawl.documents_read:
            raise self._failure_reason()

    async def _scan_one_document(self, url: str, stack: AsyncExitStack) -> None:
        """Read one document and its children; only the crawl delay of robots.txt is used."""
        client, base, _ = await self._resolve(stack)
        # An address without a scheme is requested at the origin that responds.
        given = self._site.path if url == self._site.url else url
        await self._crawl.add(given, base, DiscoveryMethod.MANUAL)
        await self._crawl.run(self._crawl.visitor(client))

    async def _scan_site(self, stack: AsyncExitStack) -> None:
        """Search the first origin that responds and, if it has no sitemap, the other host."""
        client, base, result = await self._resolve(stack)
        await self._emit(SiteResolved(base.origin))
        search = self._origin_search(client, base, result)
        await search.run(None if self._site.is_site_root else self._site.path)
        self._home_error = search.home_error
        if not self._crawl.documents_read:
            await self._try_other_host(base, stack)

    def _open_client(self, origin: WebAddress) -> HttpClient:
        """An HTTP client for an origin, redirected only to hosts that the scan may crawl."""
        client = self._client_factory(origin)
        client.on_redirect = self._crawl.frontier.hosts.follow_redirect
        return client

    def _origin_search(
        self, client: HttpClient, base: WebAddress, result: RobotsResult
    ) -> OriginSearch:
        """The search for sitemaps at the origin that responded."""
        return OriginSearch(
            self._crawl,
            client,
            base,
            robots=result,
            options=self._options,
            guesses=self._guesses,
        )

    async def _try_other_host(self, base: WebAddress, stack: AsyncExitStack) -> None:
        """Search the site with or without `www.`; only RateLimited is raised."""
        host = other_host(base.host)
        if host is None:
            return
        origin = parse_url(base.origin.replace(base.host, host, 1) + "/")
        client = await stack.enter_async_context(self._open_client(origin))
        try:
            result = await fetch_robots(client, origin, self._user_agent)
            if result.address.host == base.host:
                return
            other = await self._apply_robots(origin, result)
            await self._origin_search(client, other, result).run()
        except RateLimited:
            raise
        except (ScanError, AddressError) as error:
            log.debug("other_host_failed", host=host, code=error.code)
            return
        if self._crawl.documents_read:
            await self._emit(SiteResolved(other.origin))

    async def _resolve(self, stack: AsyncExitStack) -> tuple[HttpClient, WebAddress, RobotsResult]:
        """Find the first origin that responds. Return a client, the base address and robots.txt."""
        errors: list[SiteatlasError] = []
        for origin in candidate_origins(self._site):
            if not is_worth_trying(origin, self._site, errors):
                continue
            client = self._open_client(origin)
            await client.__aenter__()
            try:
                result = await self._request_robots(client, origin)
            except BaseException as error:
                await client.__aexit__(None, None, None)
                if not isinstance(error, TRY_NEXT_ORIGIN_ERRORS):
                    raise
                errors.append(error)
            else:
                stack.push_async_exit(client)
                return client, await self._apply_robots(origin, result), result
        raise next((error for error in errors if not isinstance(error, EgressDenied)), errors[0])

    async def _request_robots(self, client: HttpClient, origin: WebAddress) -> RobotsResult:
        """Fetch robots.txt; emit a failure, and continue without it if so configured."""
        address = parse_url("/robots.txt", origin.url)
        try:
            return await fetch_robots(client, origin, self._user_agent)
        except (ScanError, AddressError) as error:
            await self._emit(RobotsRead(address.url, None, (), error_code=error.code))
            proceed = self._options.robots_unreachable == "proceed"
            if proceed and isinstance(error, (RobotsUnreachable, Timeout)):
                return RobotsResult(address)
            raise

    async def _apply_robots(self, origin: WebAddress, result: RobotsResult) -> WebAddress:
        """Report robots.txt, apply its crawl delay and return the base of relative addresses."""
        robots, url, delay = result.robots, result.address.url, result.rules.crawl_delay
        if result.status is not None:
            await self._emit(
                RobotsRead(
                    url,
                    result.status,
                    robots.sitemaps,
                    delay,
                    text=result.text,
                    truncated=result.is_truncated,
                )
            )
        if result.is_truncated or result.rules.is_truncated:
            await self._crawl.report_problem(ProblemCode.ROBOTS_TRUNCATED, url)
        if robots.sitemaps_truncated:
            await self._crawl.report_problem(ProblemCode.SITEMAP_LINE_LIMIT, url)
        same_site = bare_host(result.address.host) == bare_host(origin.host)
        base = parse_url("/", url) if same_site else origin
        if delay:
            self._politeness.set_crawl_delay(base, delay)
        return base

    def _failure_reason(self) -> SiteatlasError:
        """The error to raise when the scan has read no document."""
        failures = self._crawl.failures
        if self._options.only_document is not None and failures:
            return failures[0][1]
        return most_specific_error(failures, self._home_error)
