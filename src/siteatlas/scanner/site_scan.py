"""One scan of one site, from its origin to its last document: the order of all steps.

Sends events to whoever listens and raises the true reason when no sitemap could be read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack

from siteatlas.errors import (
    AddressError,
    Blocked,
    ConnectionFailed,
    DnsError,
    EgressDenied,
    HttpNotFound,
    HttpProtocolError,
    NoSitemap,
    RateLimited,
    RobotsUnreachable,
    ScanError,
    ServerError,
    SiteatlasError,
    Timeout,
    TlsError,
)
from siteatlas.logs import get_logger
from siteatlas.net.address import WebAddress, parse_url
from siteatlas.net.client import HttpClient
from siteatlas.net.politeness import Politeness
from siteatlas.scanner.discovery import (
    RobotsAnswer,
    ask_random_path,
    ask_robots,
    guessed_paths,
    origins_of,
)
from siteatlas.scanner.events import (
    CandidateJudged,
    ChildLink,
    ChildrenFound,
    DiscoveryMethod,
    ProblemSeen,
    RobotsRead,
    ScanMemory,
    SiteResolved,
    Verdict,
)
from siteatlas.scanner.frontier import Candidate, Frontier, bare_host
from siteatlas.scanner.options import ScanOptions
from siteatlas.scanner.robots import Robots
from siteatlas.scanner.visit import Emit, UrlBudget, Visitor, VisitResult

log = get_logger("scanner")

MAX_SHOWN_CHARS = 2048
NEXT_ORIGIN_ON = (ConnectionFailed, DnsError, EgressDenied, HttpProtocolError, Timeout, TlsError)
OTHER_HOST_ON = (ConnectionFailed, DnsError, TlsError)
SITE_FAULTS = (Blocked, ConnectionFailed, DnsError, ServerError, Timeout, TlsError)

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
    ) -> None:
        self._site = site
        self._options = options
        self._memory = memory
        self._open_client = open_client
        self._politeness = politeness
        self._user_agent = user_agent
        self._emit = emit
        self._budget = UrlBudget(options.max_urls, options.urls_done)
        self._frontier = Frontier(
            site.host, max_documents=options.max_documents, max_depth=options.max_depth
        )
        self._robots = Robots()
        self._documents_read = 0
        self._failures: list[tuple[Candidate, SiteatlasError]] = []
        self._limits_told: set[str] = set()

    async def run(self) -> None:
        """Scan the site; raises when not one document could be read."""
        async with AsyncExitStack() as stack:
            if self._options.only_document is not None:
                await self._scan_one_document(self._options.only_document, stack)
            else:
                await self._scan_site(stack)
        if not self._documents_read:
            raise self._reason()

    async def _scan_one_document(self, url: str, stack: AsyncExitStack) -> None:
        client = await stack.enter_async_context(self._open_client(self._site))
        visitor = self._visitor(client)
        self._frontier.add(Candidate(parse_url(url, self._site.url), DiscoveryMethod.MANUAL))
        await self._crawl(visitor)

    async def _scan_site(self, stack: AsyncExitStack) -> None:
        client, base = await self._resolve(stack)
        visitor = self._visitor(client)
        await self._add_listed(base)
        await self._crawl(visitor)
        self._raise_if_rate_limited()
        if not self._documents_read or self._options.probe == "full":
            await self._guess(visitor, client, base)

    def _visitor(self, client: HttpClient) -> Visitor:
        return Visitor(
            client,
            self._frontier,
            memory=self._memory,
            budget=self._budget,
            emit=self._emit,
            follow=self._follow,
        )

    async def _resolve(self, stack: AsyncExitStack) -> tuple[HttpClient, WebAddress]:
        """The first origin that answers, with a client for it; robots.txt is read on the way."""
        errors: list[SiteatlasError] = []
        for origin in origins_of(self._site):
            if not self._worth_asking(origin, errors):
                continue
            client = self._open_client(origin)
            await client.__aenter__()
            try:
                answer = await self._ask_robots(client, origin)
            except BaseException as error:
                await client.__aexit__(None, None, None)
                if not isinstance(error, NEXT_ORIGIN_ON):
                    raise
                errors.append(error)
            else:
                stack.push_async_exit(client)
                return client, await self._settle(origin, answer)
        raise next((error for error in errors if not isinstance(error, EgressDenied)), errors[0])

    def _worth_asking(self, origin: WebAddress, errors: list[SiteatlasError]) -> bool:
        """Whether another origin may do better than those that failed."""
        if origin.host != self._site.host:
            return any(isinstance(error, OTHER_HOST_ON) for error in errors)
        return not any(isinstance(error, DnsError) for error in errors)

    async def _ask_robots(self, client: HttpClient, origin: WebAddress) -> RobotsAnswer:
        address = parse_url("/robots.txt", origin.url)
        try:
            return await ask_robots(client, origin, self._user_agent)
        except (ScanError, AddressError) as error:
            await self._emit(RobotsRead(address.url, None, (), error_code=error.code))
            proceed = self._options.robots_unreachable == "proceed"
            if isinstance(error, RobotsUnreachable) and proceed:
                return RobotsAnswer(address, None, Robots())
            raise

    async def _settle(self, origin: WebAddress, answer: RobotsAnswer) -> WebAddress:
        """Tell what was learned and choose the base of all relative addresses."""
        self._robots = answer.robots
        if answer.status is not None:
            await self._emit(
                RobotsRead(
                    answer.address.url,
                    answer.status,
                    answer.robots.sitemaps,
                    answer.robots.crawl_delay,
                )
            )
        same_site = bare_host(answer.address.host) == bare_host(origin.host)
        base = parse_url("/", answer.address.url) if same_site else origin
        if answer.robots.crawl_delay:
            self._politeness.set_crawl_delay(base, answer.robots.crawl_delay)
        await self._emit(SiteResolved(base.origin))
        return base

    async def _add_listed(self, base: WebAddress) -> None:
        if not self._site.is_site_root:
            await self._add(self._site.path, base, DiscoveryMethod.MANUAL)
        if self._options.robots_sitemaps:
            for url in self._robots.sitemaps:
                await self._add(url, base, DiscoveryMethod.ROBOTS_TXT)

    async def _add(self, url: str, base: WebAddress, method: DiscoveryMethod) -> None:
        try:
            candidate = Candidate(parse_url(url, base.url), method)
        except AddressError as error:
            shown = url[:MAX_SHOWN_CHARS]
            await self._emit(CandidateJudged(shown, method, Verdict.REJECTED, error.code))
            return
        await self._tell_refusal(candidate, self._frontier.add(candidate))

    async def _follow(
        self, parent: Candidate, parent_url: str, children: Iterable[ChildLink]
    ) -> None:
        """Tell the children of an index and queue those that may be read."""
        links: list[ChildLink] = []
        for child in children:
            try:
                address = parse_url(child.url, parent_url)
            except AddressError as error:
                shown = child.url[:MAX_SHOWN_CHARS]
                method = DiscoveryMethod.SITEMAP_INDEX
                await self._emit(CandidateJudged(shown, method, Verdict.SKIPPED, error.code))
                continue
            links.append(ChildLink(address.url, child.lastmod))
            candidate = Candidate(
                address,
                DiscoveryMethod.SITEMAP_INDEX,
                depth=parent.depth + 1,
                parent_url=parent_url,
                listed_lastmod=child.lastmod,
            )
            await self._tell_refusal(candidate, self._frontier.add(candidate))
        if links:
            await self._emit(ChildrenFound(parent_url, tuple(links)))

    async def _tell_refusal(self, candidate: Candidate, refusal: str | None) -> None:
        if refusal is None or refusal == "duplicate":
            return
        url = candidate.address.url
        await self._emit(CandidateJudged(url, candidate.method, Verdict.SKIPPED, refusal))
        await self._tell_limit(refusal, url)

    async def _tell_limit(self, code: str, url: str | None = None) -> None:
        if code not in self._limits_told:
            self._limits_told.add(code)
            await self._emit(ProblemSeen(code, url))

    async def _crawl(self, visitor: Visitor) -> None:
        """Visit everything that is queued, and what that leads to, several at a time."""
        async with asyncio.TaskGroup() as group:
            workers = [
                group.create_task(self._work(visitor))
                for _ in range(self._options.documents_in_flight)
            ]
            await self._frontier.drained()
            for worker in workers:
                worker.cancel()

    async def _work(self, visitor: Visitor) -> None:
        while True:
            candidate = await self._frontier.next()
            try:
                if self._budget.is_spent:
                    await self._tell_limit("url_limit")
                else:
                    self._note(candidate, await visitor.visit(candidate))
            finally:
                self._frontier.done()

    def _note(self, candidate: Candidate, result: VisitResult) -> None:
        if result.was_read:
            self._documents_read += 1
        if result.error is not None:
            log.debug("document_failed", url=candidate.address.url, code=result.error.code)
            if not result.was_read:
                self._failures.append((candidate, result.error))

    async def _guess(self, visitor: Visitor, client: HttpClient, base: WebAddress) -> None:
        full = self._options.probe == "full"
        visitor.random_path = await ask_random_path(client, base)
        paths = guessed_paths(full=full)
        if visitor.random_path.type is not None:
            paths = paths[:1]
        for path in paths:
            await self._guess_path(visitor, base, path)
            self._raise_if_rate_limited()
            if self._documents_read and not full:
                return

    async def _guess_path(self, visitor: Visitor, base: WebAddress, path: str) -> None:
        candidate = Candidate(parse_url(path, base.url), DiscoveryMethod.COMMON_PATH)
        url = candidate.address.url
        if not self._robots.allows(path):
            judged = CandidateJudged(url, candidate.method, Verdict.SKIPPED, "robots_disallowed")
            await self._emit(judged)
            return
        refusal = self._frontier.add(candidate)
        await self._tell_refusal(candidate, refusal)
        if refusal is None:
            await self._crawl(visitor)

    def _raise_if_rate_limited(self) -> None:
        if self._documents_read:
            return
        for _, error in self._failures:
            if isinstance(error, RateLimited):
                raise error

    def _reason(self) -> SiteatlasError:
        """The truest reason why nothing was read: a listed document's, else the site's."""
        listed = [error for candidate, error in self._failures if not candidate.is_guess]
        for error in listed:
            if not isinstance(error, HttpNotFound):
                return error
        if self._options.only_document is not None and listed:
            return listed[0]
        guesses = [error for candidate, error in self._failures if candidate.is_guess]
        faults = Counter(type(error) for error in guesses if isinstance(error, SITE_FAULTS))
        if faults:
            kind, count = faults.most_common(1)[0]
            if 2 * count >= len(guesses):
                return next(error for error in guesses if type(error) is kind)
        return NoSitemap()
