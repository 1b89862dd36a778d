"""The documents of a scan: each queued once, several read concurrently, children followed.

`Crawl` tracks what was read and what failed. `site_scan.py` supplies the first candidates.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import islice

from siteatlas.aio import fair_loop
from siteatlas.errors import AddressError, ForeignHostLimit, RateLimited, SiteatlasError
from siteatlas.logs import get_logger
from siteatlas.net.address import WebAddress, parse_url
from siteatlas.net.client import HttpClient
from siteatlas.scanner.crawl.document import CrawlCandidate
from siteatlas.scanner.crawl.frontier import Frontier, UrlLimit
from siteatlas.scanner.crawl.readers import RemoteReaders
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
    SitemapsSkipped,
    Verdict,
)
from siteatlas.scanner.options import ScanMemory, ScanOptions
from siteatlas.scanner.problem_codes import ProblemCode, ProblemGroup
from siteatlas.text import storable

log = get_logger("scanner")

MAX_SHOWN_CHARS = 2048
# An index may list 50,000 children; they are processed in chunks to keep the event loop responsive.
LINKS_PER_CHUNK = 50
# Many scans may wait for the consumer of their events at the same time.
LINKS_PER_EVENT = 250


class Crawl:
    """All documents of one scan. `failures` are those that could not be read, with the error."""

    def __init__(
        self,
        site: WebAddress,
        options: ScanOptions,
        memory: ScanMemory,
        emit: Emit,
        readers: RemoteReaders | None = None,
    ) -> None:
        self._options = options
        self._memory = memory
        self._emit = emit
        self._readers = readers
        self._budget = UrlLimit(options.max_urls, options.urls_done)
        self._reported: Counter[str] = Counter()
        self._refused: set[str] = set()
        # Links to documents that another index lists too, for each document that a scan may read.
        self._links_left = options.max_documents * 5
        self._left_out: Counter[ProblemCode] = Counter()
        self.frontier = Frontier(
            site.host, max_documents=options.max_documents, max_depth=options.max_depth
        )
        self._visits = 0
        self._start_visit: Callable[[], object] | None = None
        self.documents_read = 0
        self.failures: list[tuple[CrawlCandidate, SiteatlasError]] = []

    def visitor(self, client: HttpClient) -> Visitor:
        """A visitor that uses this client."""
        return Visitor(
            client,
            self.frontier,
            memory=self._memory,
            budget=self._budget,
            emit=self._emit,
            follow=self._follow,
            find_duplicates=self._options.find_duplicates,
            readers=self._readers,
            on_text=self._options.on_text,
        )

    async def add(
        self, url: str, base: WebAddress, method: DiscoveryMethod, *, may_be_page: bool = False
    ) -> bool:
        """Queue an address given by the site or a user; False if it is invalid or not queued."""
        address = _parse_link(url, base.url)
        return await self._add_parsed(url, address, method, may_be_page=may_be_page)

    async def add_all(self, urls: Iterable[str], base: WebAddress, method: DiscoveryMethod) -> None:
        """Queue addresses given by the site; a robots.txt may list thousands of them."""
        links = _parse_links(map(ChildLink, urls), base.url)
        async for chunk in fair_loop().time_slices(links):
            for link, address in chunk:
                await self._add_parsed(link.url, address, method)

    async def _add_parsed(
        self,
        url: str,
        address: WebAddress | AddressError,
        method: DiscoveryMethod,
        *,
        may_be_page: bool = False,
    ) -> bool:
        if isinstance(address, AddressError):
            judged = CandidateJudged(storable(url, MAX_SHOWN_CHARS), method, Verdict.REJECTED)
            await self._refuse(judged, address)
            return False
        self.frontier.hosts.name(address.host)
        return await self.add_candidate(CrawlCandidate(address, method, may_be_page=may_be_page))

    async def add_candidate(self, candidate: CrawlCandidate) -> bool:
        """Queue a candidate; False if it was seen before or exceeds a limit."""
        return await self._queue(candidate) is None

    async def _queue(self, candidate: CrawlCandidate) -> ProblemCode | None:
        refusal = self.frontier.add(candidate)
        self._start_visits()
        if refusal is not None and refusal is not ProblemCode.DUPLICATE:
            await self.skip(candidate, refusal)
        return refusal

    async def skip(self, candidate: CrawlCandidate, reason: ProblemCode) -> None:
        """Report that a candidate is not requested; a limit is also a problem of the whole scan."""
        url = candidate.address.url
        await self._report_candidate(
            CandidateJudged(url, candidate.method, Verdict.SKIPPED, reason.value)
        )
        if reason.group is ProblemGroup.SCAN:
            await self.report_problem(reason, url)

    async def _refuse(
        self, judged: CandidateJudged, error: AddressError, parent_url: str | None = None
    ) -> None:
        if judged.url in self._refused or not await self._report_candidate(
            judged._replace(reason=error.code)
        ):
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
        """Report a problem of the whole scan, once."""
        key = f"problem {code}"
        self._reported[key] += 1
        if self._reported[key] == 1:
            await self._emit(ProblemSeen(code.value, url))

    def skipped_sitemaps(self) -> SitemapsSkipped:
        """How many children of indexes the filter has left out so far."""
        return SitemapsSkipped(
            by_address=self._left_out[ProblemCode.FILTERED_ADDRESS],
            by_date=self._left_out[ProblemCode.FILTERED_DATE],
        )

    async def run(self, visitor: Visitor) -> None:
        """Visit all queued candidates and those found on the way, several at a time."""
        try:
            async with asyncio.TaskGroup() as group:
                self._start_visit = lambda: group.create_task(self._visit_queued(visitor))
                # Most sites have one document, which needs no task of its own.
                self._visits += 1
                await self._visit_queued(visitor)
        finally:
            self._start_visit = None

    def raise_if_rate_limited(self) -> None:
        """Stop the scan if the site asks us to wait and no document has been read."""
        if self.documents_read:
            return
        for _, error in self.failures:
            if isinstance(error, RateLimited):
                raise error

    async def _visit_queued(self, visitor: Visitor) -> None:
        try:
            while (candidate := self.frontier.next()) is not None:
                self._start_visits()
                if self._budget.is_spent:
                    await self.report_problem(ProblemCode.URL_LIMIT)
                else:
                    await self._record_result(candidate, await visitor.visit(candidate))
                self.frontier.done()
        finally:
            self._visits -= 1

    def _start_visits(self) -> None:
        if self._start_visit is None:
            return
        room = self._options.documents_in_flight - self._visits
        for _ in range(min(room, self.frontier.waiting)):
            self._visits += 1
            self._start_visit()

    async def _record_result(self, candidate: CrawlCandidate, result: VisitResult) -> None:
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
    ) -> bool:
        """Queue the children of an index that may be read, and report only those.

        Consumers must not be made to store more than a scan reads. Once the document limit is
        reached, the children of later indexes are ignored. Return whether the filter of the scan
        left out any.
        """
        links: list[ChildLink] = []
        left_out = False
        parent_host = parse_url(parent_url).host
        async for child, address in self._until_document_limit(children, parent_url):
            candidate = await self._child_candidate(child, address, parent, parent_url, parent_host)
            if candidate is not None and await self._leave_out(candidate):
                left_out = True
            elif candidate is not None and await self._follow_child(candidate, client):
                url = candidate.address.url
                links.append(child if url == child.url else ChildLink(url, child.lastmod))
            if len(links) >= LINKS_PER_EVENT:
                await self._emit(ChildrenFound(parent_url, tuple(links)))
                links.clear()
        if links:
            await self._emit(ChildrenFound(parent_url, tuple(links)))
        return left_out

    async def _leave_out(self, candidate: CrawlCandidate) -> bool:
        wanted = self._options.child_filter
        if wanted is None:
            return False
        reason = wanted.refusal(candidate.address.url, candidate.listed_lastmod)
        if reason is None:
            return False
        self._left_out[reason] += 1
        await self.skip(candidate, reason)
        return True

    async def _until_document_limit(
        self, children: Iterable[ChildLink], parent_url: str
    ) -> AsyncIterator[tuple[ChildLink, WebAddress | AddressError]]:
        async for chunk in fair_loop().time_slices(_parse_links(children, parent_url)):
            for link in chunk:
                if self._reported[f"problem {ProblemCode.DOCUMENT_LIMIT}"]:
                    return
                yield link

    async def _follow_child(self, candidate: CrawlCandidate, client: HttpClient) -> bool:
        assert candidate.parent_host is not None
        if not self.frontier.hosts.follows(candidate.address.host, candidate.parent_host):
            await self._skip_foreign_child(candidate, client)
            return False
        refusal = await self._queue(candidate)
        # One that was queued before is reported too, up to a limit.
        if refusal is ProblemCode.DUPLICATE:
            self._links_left -= 1
            return self._links_left >= 0
        return refusal is None

    async def _skip_foreign_child(self, candidate: CrawlCandidate, client: HttpClient) -> None:
        """Report a child on a foreign host as skipped, or as refused if the policy forbids it."""
        try:
            client.check(candidate.address)
        except AddressError as error:
            url = candidate.address.url
            judged = CandidateJudged(url, candidate.method, Verdict.SKIPPED)
            await self._refuse(judged, error, candidate.parent_url)
        else:
            await self.skip(candidate, ProblemCode.CROSS_HOST)

    async def _child_candidate(
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

    async def _report_candidate(self, event: CandidateJudged) -> bool:
        # An index may list 50,000 invalid URLs; not all of them are reported.
        key = f"{event.method} {event.reason}"
        self._reported[key] += 1
        if self._reported[key] > 100:
            return False
        await self._emit(event)
        return True


def _parse_links(
    children: Iterable[ChildLink], parent_url: str
) -> Iterator[Sequence[tuple[ChildLink, WebAddress | AddressError]]]:
    links = iter(children)
    while chunk := tuple(islice(links, LINKS_PER_CHUNK)):
        yield [(child, _parse_link(child.url, parent_url)) for child in chunk]


def _parse_link(url: str, base_url: str) -> WebAddress | AddressError:
    try:
        return parse_url(url, base_url)
    except AddressError as error:
        return error
