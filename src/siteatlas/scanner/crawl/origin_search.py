"""Searches for sitemaps at one origin: first what the site names, then common paths.

Common paths respect robots.txt and end with the first sitemap, unless a full probe is requested.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from siteatlas.aio.fairness import fair_loop
from siteatlas.errors import (
    AddressError,
    Blocked,
    ConnectionFailed,
    DnsError,
    RateLimited,
    ScanError,
    SiteatlasError,
    Timeout,
    TlsError,
)
from siteatlas.logs import get_logger
from siteatlas.net.address import WebAddress, parse_url
from siteatlas.net.client import HttpClient
from siteatlas.scanner.crawl.candidates import CrawlCandidate
from siteatlas.scanner.crawl.crawl import Crawl
from siteatlas.scanner.discovery.probes import RobotsResult, probe_random_path
from siteatlas.scanner.discovery.well_known import guessed_paths, names_document
from siteatlas.scanner.events import DiscoveryMethod
from siteatlas.scanner.options import ScanOptions
from siteatlas.scanner.problem_codes import ProblemCode

if TYPE_CHECKING:
    from siteatlas.scanner.discovery.home_page import HomePage

log = get_logger("scanner")

MAX_GUESSES = 60
MAX_CONSECUTIVE_FAILURES = 3
NO_RESPONSE_ERRORS = (ConnectionFailed, DnsError, Timeout, TlsError)


class GuessBudget:
    """How many guesses a scan may still make, over all origins."""

    def __init__(self, remaining: int = MAX_GUESSES) -> None:
        self._remaining = remaining

    def take_guess(self) -> bool:
        """Count one guessed path against the limit of the scan; False if none is left."""
        self._remaining -= 1
        return self._remaining >= 0


class OriginSearch:
    """Looks for sitemaps at one origin, with one client.

    `home_error` is the error of the home page request.
    """

    def __init__(
        self,
        crawl: Crawl,
        client: HttpClient,
        base: WebAddress,
        *,
        robots: RobotsResult,
        options: ScanOptions,
        guesses: GuessBudget,
    ) -> None:
        self._crawl = crawl
        self._client = client
        self._base = base
        self._sitemaps = robots.robots.sitemaps
        self._rules = robots.rules
        self._robots_answered = robots.status is not None
        self._options = options
        self._guesses = guesses
        self._visitor = crawl.visitor(client)
        self.home_error: SiteatlasError | None = None

    async def run(self, path: str | None = None) -> None:
        """Read a given path and the sitemaps of robots.txt; if nothing was found, also search the
        home page and the common paths.
        """
        await self._crawl_named(path)
        if self._is_done:
            return
        home = await self._fetch_home()
        if home is not None:
            await self._read_links(home)
        if not self._is_done:
            await self._try_common_paths(home)
        if home is not None and not self._is_done:
            await self._crawl.add_all(home.feeds, home.base, DiscoveryMethod.HTML_LINK)
            await self._crawl_queued()

    @property
    def _is_done(self) -> bool:
        """Whether a document was read and no full probe was requested."""
        return self._crawl.documents_read > 0 and self._options.probe != "full"

    @property
    def _is_unresponsive(self) -> bool:
        """Whether the last requests all failed without a response."""
        last = [error for _, error in self._crawl.failures[-MAX_CONSECUTIVE_FAILURES:]]
        return len(last) == MAX_CONSECUTIVE_FAILURES and all(
            isinstance(e, NO_RESPONSE_ERRORS) for e in last
        )

    async def _crawl_queued(self) -> None:
        """Read the candidates queued so far; raises if the site asks us to wait."""
        await self._crawl.run(self._visitor)
        self._crawl.raise_if_rate_limited()

    async def _crawl_named(self, path: str | None) -> None:
        """Crawl the given path, the manual documents and the sitemaps of robots.txt."""
        method = DiscoveryMethod.MANUAL
        if path is not None:
            may_be_page = not names_document(path)
            await self._crawl.add(path, self._base, method, may_be_page=may_be_page)
        await self._crawl.add_all(self._options.manual_documents, self._base, method)
        if self._options.robots_sitemaps:
            await self._crawl.add_all(self._sitemaps, self._base, DiscoveryMethod.ROBOTS_TXT)
        await self._crawl_queued()

    async def _fetch_home(self) -> HomePage | None:
        """The home page, if robots.txt allows it; raises if the site does not respond at all."""
        if not await self._allows_any(["/"]):
            return None
        # Late, so that a scan sends its first request before it imports the HTML parser.
        from siteatlas.scanner.discovery.home_page import fetch_home_page

        try:
            home = await fetch_home_page(self._client, self._base)
        except RateLimited:
            raise
        except (ScanError, AddressError) as error:
            if not self._robots_answered and isinstance(error, (ConnectionFailed, Timeout)):
                raise
            log.debug("home_page_failed", url=self._base.url, code=error.code)
            self.home_error = error
            return None
        if home.is_challenge:
            self.home_error = Blocked("The site shows a browser challenge.")
        return home

    async def _read_links(self, home: HomePage) -> None:
        """Read the sitemaps that the home page links to in its headers and tags."""
        await self._crawl.add_all(home.header_links, home.base, DiscoveryMethod.HTTP_HEADER)
        await self._crawl.add_all(home.page_links, home.base, DiscoveryMethod.HTML_LINK)
        await self._crawl_queued()

    async def _try_common_paths(self, home: HomePage | None) -> None:
        paths = guessed_paths(home.hints if home else ())
        if await self._allows_any(paths):
            self._visitor.random_path = await probe_random_path(self._client, self._base)
        if self._visitor.random_path.type is not None:
            paths = paths[:1]
        for path in paths:
            if self._is_done or self._is_unresponsive or not await self._try_path(path):
                return

    async def _allows_any(self, paths: Iterable[str]) -> bool:
        """Whether robots.txt allows one of these paths; each may take milliseconds."""
        async for allowed in fair_loop().time_slices(map(self._rules.allows, paths)):
            if allowed:
                return True
        return False

    async def _try_path(self, path: str) -> bool:
        """Try one path; False when no guess is left."""
        address = parse_url(path, self._base.url)
        candidate = CrawlCandidate(address, DiscoveryMethod.COMMON_PATH)
        if not await self._allows_any([path]):
            await self._crawl.skip(candidate, ProblemCode.ROBOTS_DISALLOWED)
        elif not self._guesses.take_guess():
            return False
        elif await self._crawl.add_candidate(candidate):
            await self._crawl_queued()
        return True
