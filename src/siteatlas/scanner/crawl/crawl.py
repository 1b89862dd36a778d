"""The documents of a scan: each queued once, several read concurrently, children followed.

Tracks what was read and what failed. `origin_search.py` supplies the first candidates.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from siteatlas.aio.fairness import fair_loop
from siteatlas.errors import AddressError, ForeignHostLimit, RateLimited, SiteatlasError
from siteatlas.logs import get_logger
from siteatlas.net.address import WebAddress, parse_url
from siteatlas.net.client import HttpClient
from siteatlas.safe_text import storable
from siteatlas.scanner.crawl.frontier import (
    CrawlCandidate,
    Frontier,
    UrlLimit,
)
from siteatlas.scanner.crawl.visit import Visitor, VisitResult
from siteatlas.scanner.events import (
    CandidateJudged,
    ChildLink,
    ChildrenFound,
    DiscoveryMethod,
    DocumentClosed,
    DocumentOutcome,
    Emit,
    ProblemSeen,
    ScanMemory,
    Verdict,
)
from siteatlas.scanner.options import ScanOptions
from siteatlas.scanner.problem_codes import ProblemCode, ProblemGroup

log = get_logger("scanner")

MAX_SHOWN_CHARS = 2048
# A hostile index names 50,000 places; a hundred of them tell the story.
MAX_REPORTED_PER_REASON = 100
# Links to documents that another index lists too, for each document that a scan may read.
LINKS_PER_DOCUMENT = 5
# An index may list 50,000 children, and the event loop is not kept for all of them at once.
LINKS_PER_PIECE = 50


class Crawl:
    """All documents of one scan. `failures` holds those that gave nothing, with the reason."""

    def __init__(
        self, site: WebAddress, options: ScanOptions, memory: ScanMemory, emit: Emit
    ) -> None:
        self._options = options
        self._memory = memory
        self._emit = emit
        self._budget = UrlLimit(options.max_urls, options.urls_done)
        self._told: Counter[str] = Counter()
        self._refused: set[str] = set()
        self._links_left = options.max_documents * LINKS_PER_DOCUMENT
        self.frontier = Frontier(
            site.host, max_documents=options.max_documents, max_depth=options.max_depth
        )
        self.documents_read = 0
        self.failures: list[tuple[CrawlCandidate, SiteatlasError]] = []

    def visitor(self, client: HttpClient) -> Visitor:
        """Somebody who visits candidates with this client."""
        return Visitor(
            client,
            self.frontier,
            memory=self._memory,
            budget=self._budget,
            emit=self._emit,
            follow=self._follow,
            find_duplicates=self._options.find_duplicates,
        )

    async def add(
        self, url: str, base: WebAddress, method: DiscoveryMethod, *, may_be_page: bool = False
    ) -> bool:
        """Queue an address that the site or a user named; False if it is invalid or not wanted."""
        try:
            address = parse_url(url, base.url)
        except AddressError as error:
            await self._refuse(
                CandidateJudged(storable(url, MAX_SHOWN_CHARS), method, Verdict.REJECTED), error
            )
            return False
        self.frontier.hosts.name(address.host)
        return await self.add_candidate(CrawlCandidate(address, method, may_be_page=may_be_page))

    async def add_candidate(self, candidate: CrawlCandidate) -> bool:
        """Queue a candidate; False when it was seen before or a limit is in the way."""
        return await self._queue(candidate) is None

    async def _queue(self, candidate: CrawlCandidate) -> ProblemCode | None:
        """Queue a candidate, or give the reason why not; a refusal is told."""
        refusal = self.frontier.add(candidate)
        if refusal is not None and refusal is not ProblemCode.DUPLICATE:
            await self.skip(candidate, refusal)
        return refusal

    async def skip(self, candidate: CrawlCandidate, reason: ProblemCode) -> None:
        """Tell that a candidate is not asked for; a limit is also a problem of the whole scan."""
        url = candidate.address.url
        await self._tell(CandidateJudged(url, candidate.method, Verdict.SKIPPED, reason.value))
        if reason.group is ProblemGroup.SCAN:
            await self.report_problem(reason, url)

    async def _refuse(
        self, judged: CandidateJudged, error: AddressError, parent_url: str | None = None
    ) -> None:
        """A named place that cannot or may not be asked for is a document that is not read."""
        if judged.url in self._refused or not await self._tell(replace(judged, reason=error.code)):
            return
        self._refused.add(judged.url)
        await self._emit(
            DocumentClosed(
                url=judged.url,
                requested_url=judged.url,
                outcome=DocumentOutcome.UNREAD,
                method=judged.method,
                parent_url=parent_url,
                error_code=error.code,
                error=error.message,
            )
        )

    async def report_problem(self, code: ProblemCode, url: str | None = None) -> None:
        """Tell of something that touches the whole scan, once."""
        self._told[f"problem {code}"] += 1
        if self._told[f"problem {code}"] == 1:
            await self._emit(ProblemSeen(code.value, url))

    async def run(self, visitor: Visitor) -> None:
        """Visit everything that is queued, and what that leads to, several at a time."""
        async with asyncio.TaskGroup() as group:
            workers = [
                group.create_task(self._work(visitor))
                for _ in range(self._options.documents_in_flight)
            ]
            await self.frontier.drained()
            for worker in workers:
                worker.cancel()

    def raise_if_rate_limited(self) -> None:
        """A site that gave nothing and asks us to wait is left alone at once."""
        if self.documents_read:
            return
        for _, error in self.failures:
            if isinstance(error, RateLimited):
                raise error

    async def _work(self, visitor: Visitor) -> None:
        while True:
            candidate = await self.frontier.next()
            try:
                if self._budget.is_spent:
                    await self.report_problem(ProblemCode.URL_LIMIT)
                else:
                    await self._note(candidate, await visitor.visit(candidate))
            finally:
                self.frontier.done()

    async def _note(self, candidate: CrawlCandidate, result: VisitResult) -> None:
        if result.document_was_read:
            self.documents_read += 1
        if result.error is not None:
            log.debug("document_failed", url=candidate.address.url, code=result.error.code)
            if not result.document_was_read:
                self.failures.append((candidate, result.error))
            if isinstance(result.error, ForeignHostLimit):
                await self.report_problem(ProblemCode.CROSS_HOST_CAP, candidate.address.url)

    async def _follow(
        self,
        parent: CrawlCandidate,
        parent_url: str,
        children: Iterable[ChildLink],
        client: HttpClient,
    ) -> None:
        """Queue the children of an index that may be read, and tell those alone.

        Consumers must not be made to store more than a scan reads. Once there
        is no room, nothing that a later index lists is looked at.
        """
        links: list[ChildLink] = []
        parent_host = parse_url(parent_url).host
        async for child, address in self._while_there_is_room(children, parent_url):
            candidate = await self._child(child, address, parent, parent_url, parent_host)
            if candidate is not None and await self._follow_child(candidate, client):
                links.append(ChildLink(candidate.address.url, child.lastmod))
        if links:
            await self._emit(ChildrenFound(parent_url, tuple(links)))

    async def _while_there_is_room(
        self, children: Iterable[ChildLink], parent_url: str
    ) -> AsyncIterator[tuple[ChildLink, WebAddress | AddressError]]:
        async for some in fair_loop().time_slices(_read_links(children, parent_url)):
            for one in some:
                if self._told[f"problem {ProblemCode.DOCUMENT_LIMIT}"]:
                    return
                yield one

    async def _follow_child(self, candidate: CrawlCandidate, client: HttpClient) -> bool:
        """Queue a child if it may be read; whether it is told."""
        assert candidate.parent_host is not None
        if not self.frontier.hosts.follows(candidate.address.host, candidate.parent_host):
            await self._leave_out(candidate, client)
            return False
        return self._is_told(await self._queue(candidate))

    def _is_told(self, refusal: ProblemCode | None) -> bool:
        """Whether a child is told: one that is queued now, or was before, within reason."""
        if refusal is ProblemCode.DUPLICATE:
            self._links_left -= 1
            return self._links_left >= 0
        return refusal is None

    async def _leave_out(self, candidate: CrawlCandidate, client: HttpClient) -> None:
        """An entry on a foreign host is not followed; one that is forbidden at all is refused."""
        try:
            client.check(candidate.address)
        except AddressError as error:
            url = candidate.address.url
            judged = CandidateJudged(url, candidate.method, Verdict.SKIPPED)
            await self._refuse(judged, error, candidate.parent_url)
        else:
            await self.skip(candidate, ProblemCode.CROSS_HOST)

    async def _child(
        self,
        child: ChildLink,
        address: WebAddress | AddressError,
        parent: CrawlCandidate,
        parent_url: str,
        parent_host: str,
    ) -> CrawlCandidate | None:
        method = DiscoveryMethod.SITEMAP_INDEX
        if isinstance(address, AddressError):
            judged = CandidateJudged(storable(child.url, MAX_SHOWN_CHARS), method, Verdict.SKIPPED)
            await self._refuse(judged, address, parent_url)
            return None
        return CrawlCandidate(
            address,
            method,
            depth=parent.depth + 1,
            parent_url=parent_url,
            parent_host=parent_host,
            listed_lastmod=child.lastmod,
            below_robots=parent.named_by_robots,
        )

    async def _tell(self, event: CandidateJudged) -> bool:
        """Tell of a candidate; False when the same was told of many others."""
        self._told[f"{event.method} {event.reason}"] += 1
        if self._told[f"{event.method} {event.reason}"] > MAX_REPORTED_PER_REASON:
            return False
        await self._emit(event)
        return True


def _read_links(
    children: Iterable[ChildLink], parent_url: str
) -> Iterator[Sequence[tuple[ChildLink, WebAddress | AddressError]]]:
    """The children with their addresses, or what is wrong with them, some at a time."""
    links = iter(children)
    while piece := tuple(islice(links, LINKS_PER_PIECE)):
        yield [(child, _read_link(child, parent_url)) for child in piece]


def _read_link(child: ChildLink, parent_url: str) -> WebAddress | AddressError:
    try:
        return parse_url(child.url, parent_url)
    except AddressError as error:
        return error
