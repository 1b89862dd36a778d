"""One scan of one site, from its origin to its last document.

`SiteScan` finds the origin that responds and reads its robots.txt. `OriginSearch` then looks for
sitemaps there in the order of cost: what a user or robots.txt names, what the home page links to,
and last the common paths. Events go to the listener; if not one document could be read, the most
specific of the errors on the way is raised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from siteatlas.aio import fair_loop
from siteatlas.errors import (
    AddressError,
    Blocked,
    ConnectionFailed,
    DecompressionBomb,
    DnsError,
    EgressDenied,
    EmptyDocument,
    EncodingChain,
    EncodingUnsupported,
    GzipCorrupt,
    GzipMembers,
    HeaderNotSent,
    HtmlInstead,
    HttpNotFound,
    NoSitemap,
    NotASitemap,
    PaymentRequired,
    RateLimited,
    RedirectInvalid,
    RedirectLoop,
    RobotsUnreachable,
    ScanError,
    ServerError,
    SiteatlasError,
    Timeout,
    TlsError,
    TooLarge,
    TooManyRedirects,
    Truncated,
    XmlEntities,
    XmlLimits,
    XmlMalformed,
)
from siteatlas.logs import get_logger
from siteatlas.net.address import WebAddress, bare_host, parse_url
from siteatlas.net.client import HttpClient
from siteatlas.scanner.crawl.crawl import Crawl
from siteatlas.scanner.crawl.document import CrawlCandidate
from siteatlas.scanner.crawl.readers import RemoteReaders
from siteatlas.scanner.discovery.home_page import (
    HomePage,
    fetch_home_page,
    guessed_paths,
    names_document,
)
from siteatlas.scanner.discovery.probes import (
    TRY_NEXT_ORIGIN_ERRORS,
    RobotsResult,
    candidate_origins,
    fetch_robots,
    is_worth_trying,
    other_host,
    probe_random_path,
)
from siteatlas.scanner.events import (
    DiscoveryMethod,
    Emit,
    RobotsRead,
    SiteResolved,
)
from siteatlas.scanner.options import ScanMemory, ScanOptions
from siteatlas.scanner.problem_codes import ProblemCode

log = get_logger("scanner")

MAX_GUESSES = 60
QUICK_GUESSES = 6
NAMED_REFUSED = "Connections to the sitemaps that the site names are not allowed."

Failure = tuple[CrawlCandidate, SiteatlasError]


class SiteScan:
    """Everything that one scan needs while it runs; `run` is called once."""

    def __init__(
        self,
        site: WebAddress,
        *,
        options: ScanOptions,
        memory: ScanMemory,
        client: HttpClient,
        emit: Emit,
        readers: RemoteReaders | None = None,
    ) -> None:
        self._site = site
        self._options = options
        self._client = client
        self._clients: list[HttpClient] = []
        self._emit = emit
        self._crawl = Crawl(site, options, memory, emit, readers)
        self._guesses = GuessBudget(QUICK_GUESSES if options.probe == "quick" else MAX_GUESSES)
        self._home_error: SiteatlasError | None = None

    async def run(self) -> None:
        """Scan the site; raises when not one document could be read."""
        if self._options.child_filter is not None:
            await self._crawl.report_problem(ProblemCode.SITEMAPS_FILTERED)
        try:
            if self._options.only_document is not None:
                await self._scan_one_document(self._options.only_document)
            else:
                await self._scan_site()
        finally:
            for client in self._clients:
                client.close_idle()
        if self._options.child_filter is not None:
            await self._emit(self._crawl.skipped_sitemaps())
        if not self._crawl.documents_read:
            raise self._failure_reason()

    async def _scan_one_document(self, url: str) -> None:
        """Read one document and its children; only the crawl delay of robots.txt is used."""
        client, base, _ = await self._resolve()
        # An address without a scheme is requested at the origin that responds.
        given = self._site.path if url == self._site.url else url
        await self._crawl.add(given, base, DiscoveryMethod.MANUAL)
        await self._crawl.run(self._crawl.visitor(client))

    async def _scan_site(self) -> None:
        client, base, result = await self._resolve()
        await self._emit(self._resolved(base))
        search = self._origin_search(client, base, result)
        await search.run(None if self._site.is_site_root else self._site.path)
        self._home_error = search.home_error
        if not self._crawl.documents_read and self._options.probe != "quick":
            await self._try_other_host(base)

    def _resolved(self, base: WebAddress) -> SiteResolved:
        return SiteResolved(base.origin, self._client.politeness.network_of(base))

    def _client_for(self, origin: WebAddress) -> HttpClient:
        client = self._client.for_site(
            origin,
            headers=self._options.headers,
            on_redirect=self._crawl.frontier.hosts.follow_redirect,
        )
        self._clients.append(client)
        return client

    def _origin_search(
        self, client: HttpClient, base: WebAddress, result: RobotsResult
    ) -> OriginSearch:
        return OriginSearch(
            self._crawl,
            client,
            base,
            robots=result,
            options=self._options,
            guesses=self._guesses,
        )

    async def _try_other_host(self, base: WebAddress) -> None:
        """Search the site with or without `www.`; only RateLimited is raised."""
        host = other_host(base.host)
        if host is None:
            return
        origin = parse_url(base.origin.replace(base.host, host, 1) + "/")
        client = self._client_for(origin)
        try:
            result = await fetch_robots(client, origin)
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
            await self._emit(self._resolved(other))

    async def _resolve(self) -> tuple[HttpClient, WebAddress, RobotsResult]:
        errors: list[SiteatlasError] = []
        answered: list[EgressDenied] = []
        for origin in candidate_origins(self._site):
            if not is_worth_trying(origin, self._site, errors):
                continue
            client = self._client_for(origin)
            try:
                result = await self._request_robots(client, origin)
            except TRY_NEXT_ORIGIN_ERRORS as error:
                errors.append(error)
                here = (origin.host, origin.port)
                if isinstance(error, EgressDenied) and error.at and error.at[:2] != here:
                    # It redirects to where the scan may not go.
                    answered.append(error)
            else:
                return client, await self._apply_robots(origin, result), result
        others = (error for error in errors if not isinstance(error, EgressDenied))
        raise next(iter((*answered, *others)), errors[0])

    async def _request_robots(self, client: HttpClient, origin: WebAddress) -> RobotsResult:
        address = origin.at("/robots.txt")
        try:
            return await fetch_robots(client, origin)
        except (ScanError, AddressError) as error:
            await self._emit(RobotsRead(address.url, None, (), error_code=error.code))
            proceed = self._options.robots_unreachable == "proceed"
            if proceed and isinstance(error, (RobotsUnreachable, Timeout)):
                return RobotsResult(address)
            raise

    async def _apply_robots(self, origin: WebAddress, result: RobotsResult) -> WebAddress:
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
        base = result.address.at("/") if same_site else origin
        if delay:
            self._client.politeness.set_crawl_delay(base, delay)
        return base

    def _failure_reason(self) -> SiteatlasError:
        failures = self._crawl.failures
        if self._options.only_document is not None and failures:
            return failures[0][1]
        return most_specific_error(failures, self._home_error)


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
        return self._crawl.documents_read > 0 and self._options.probe != "full"

    @property
    def _is_unresponsive(self) -> bool:
        enough = 3
        last = [error for _, error in self._crawl.failures[-enough:]]
        return len(last) == enough and all(
            isinstance(error, (ConnectionFailed, DnsError, Timeout, TlsError)) for error in last
        )

    async def _crawl_queued(self) -> None:
        await self._crawl.run(self._visitor)
        self._crawl.raise_if_rate_limited()

    async def _crawl_named(self, path: str | None) -> None:
        method = DiscoveryMethod.MANUAL
        if path is not None:
            may_be_page = not names_document(path)
            await self._crawl.add(path, self._base, method, may_be_page=may_be_page)
        await self._crawl.add_all(self._options.manual_documents, self._base, method)
        if self._options.robots_sitemaps:
            await self._crawl.add_all(self._sitemaps, self._base, DiscoveryMethod.ROBOTS_TXT)
        await self._crawl_queued()

    async def _fetch_home(self) -> HomePage | None:
        if not await self._allows_any(["/"]):
            return None
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
        candidate = CrawlCandidate(self._base.at(path), DiscoveryMethod.COMMON_PATH)
        if not await self._allows_any([path]):
            await self._crawl.skip(candidate, ProblemCode.ROBOTS_DISALLOWED)
        elif not self._guesses.take_guess():
            return False
        elif await self._crawl.add_candidate(candidate):
            await self._crawl_queued()
        return True


class GuessBudget:
    """How many guesses a scan may still make, over all origins."""

    def __init__(self, remaining: int) -> None:
        self._remaining = remaining

    def take_guess(self) -> bool:
        """Count one guessed path against the limit of the scan; False if none is left."""
        self._remaining -= 1
        return self._remaining >= 0


# If most guesses fail with one of these, it is an error of the site.
SITE_FAULTS = (
    *(Blocked, ConnectionFailed, DnsError, PaymentRequired, ServerError, Timeout, TlsError),
    *(HeaderNotSent, RedirectInvalid, RedirectLoop, TooManyRedirects),
)


# If a guess fails with one of these, a document exists there and cannot be read.
DOCUMENT_FAULTS = (
    *(DecompressionBomb, EmptyDocument, EncodingChain, EncodingUnsupported, GzipCorrupt),
    *(GzipMembers, NotASitemap, TooLarge, Truncated, XmlEntities, XmlLimits, XmlMalformed),
)


def most_specific_error(
    failures: Sequence[Failure], home_error: SiteatlasError | None
) -> SiteatlasError:
    """The error of a named document, else of the site, else of a guessed one, else NoSitemap."""
    named = [error for candidate, error in failures if _is_named(candidate, error)]
    guessed = [error for candidate, error in failures if candidate.is_guess]
    of_named = next((error for error in named if not isinstance(error, HttpNotFound)), None)
    if isinstance(of_named, EgressDenied):
        # It is the named sitemap that is denied, not the site.
        of_named = EgressDenied(NAMED_REFUSED, at=of_named.at)
    return (
        of_named
        or _site_error(guessed)
        or _guess_error(guessed)
        or (home_error if not guessed and isinstance(home_error, SITE_FAULTS) else None)
        or NoSitemap()
    )


def _is_named(candidate: CrawlCandidate, error: SiteatlasError) -> bool:
    if candidate.may_be_page:
        return isinstance(error, SITE_FAULTS)
    return not candidate.is_guess


def _site_error(guessed: Sequence[SiteatlasError]) -> SiteatlasError | None:
    faults = [error for error in guessed if isinstance(error, SITE_FAULTS)]
    if 2 * len(faults) < len(guessed) or not faults:
        return None
    kind, _ = Counter(map(type, faults)).most_common(1)[0]
    return next(error for error in faults if type(error) is kind)


def _guess_error(guessed: Sequence[SiteatlasError]) -> SiteatlasError | None:
    """The error of a guessed document; HTML does not count, as many sites have a page there."""
    there = [error for error in guessed if isinstance(error, DOCUMENT_FAULTS)]
    pages = sum(isinstance(error, HtmlInstead) for error in there)
    alike = 2 * len(there) > len(guessed)
    if len(there) == pages or alike:
        return None
    return next(error for error in there if not isinstance(error, HtmlInstead))


async def probe_document(client: HttpClient, url: str) -> str | SiteatlasError:
    """The address of a document after redirects, or its error; its body is not received."""
    try:
        async with client.get(parse_url(url)) as response:
            return response.status_error() or response.error() or response.address.url
    except (ScanError, AddressError) as fault:
        return fault
