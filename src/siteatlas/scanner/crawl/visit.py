"""Reads one candidate: requests it, reads it as a stream, and reports what was found.

Errors of a document never propagate. `crawl.py` decides which candidates are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from siteatlas.aio.fairness import fair_loop
from siteatlas.errors import (
    AddressError,
    EncodingUnsupported,
    HtmlInstead,
    HttpProtocolError,
    ScanError,
    SiteatlasError,
    UrlLimitReached,
)
from siteatlas.logs import get_logger
from siteatlas.net.client import HttpClient
from siteatlas.net.response import Response
from siteatlas.scanner.crawl.candidates import CrawlCandidate
from siteatlas.scanner.crawl.fetched_document import FetchedDocument
from siteatlas.scanner.crawl.frontier import Frontier, UrlLimit
from siteatlas.scanner.crawl.held_body import HeldBody
from siteatlas.scanner.crawl.known_documents import (
    KnownDocuments,
    has_known_content,
    lied,
    validators_in,
)
from siteatlas.scanner.crawl.placement import Placement
from siteatlas.scanner.crawl.redirect_targets import RedirectTargets
from siteatlas.scanner.discovery.probes import RandomPathResult
from siteatlas.scanner.events import (
    CandidateJudged,
    ChildLink,
    DocumentOutcome,
    DocumentRequested,
    Emit,
    ProblemSeen,
    UnchangedBy,
    Verdict,
)
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.content_hash import ContentHash
from siteatlas.scanner.reading.document import DocumentReader
from siteatlas.scanner.reading.duplicates import DuplicateUrls
from siteatlas.scanner.reading.tally import ReadResult
from siteatlas.scanner.scan_memory import KnownDocument, ScanMemory

log = get_logger("scanner")

ENTRIES_PER_EVENT = 500
NOT_MODIFIED = 304

# Returns whether a filter left out some of the children.
FollowChildren = Callable[[CrawlCandidate, str, Iterable[ChildLink], HttpClient], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class VisitResult:
    """How a visit ended; `outcome` is None if the final URL was already read in this scan."""

    outcome: DocumentOutcome | None
    error: SiteatlasError | None = None
    opened: bool = False

    @property
    def document_was_read(self) -> bool:
        """Whether this visit has read a document."""
        return self.outcome is not None and self.outcome.is_read


class Visitor:
    """Visits candidates of one scan with one client."""

    def __init__(
        self,
        client: HttpClient,
        frontier: Frontier,
        *,
        memory: ScanMemory,
        budget: UrlLimit,
        emit: Emit,
        follow: FollowChildren,
        find_duplicates: bool = False,
    ) -> None:
        self._client = client
        self._frontier = frontier
        self._known = KnownDocuments(memory, budget)
        self._budget = budget
        self._emit = emit
        self._follow = follow
        self._find_duplicates = find_duplicates
        self._targets = RedirectTargets(frontier)
        self._one_at_a_time = asyncio.Lock()
        self.random_path = RandomPathResult()

    async def visit(self, candidate: CrawlCandidate) -> VisitResult:
        """Fetch and read one candidate; errors are returned in the result."""
        known = self._known.requested(candidate.address.url)
        if known is not None and known.done:
            return await self._skip_done(candidate, known)
        reading = FetchedDocument.of(candidate)
        await self._emit(DocumentRequested(reading.url, candidate.method, candidate.parent_url))
        try:
            return await self._fetch_with_fallback(reading)
        except (ScanError, AddressError) as error:
            return await self._close_failed(reading, error)
        except Exception:
            # The error boundary of one document: a bug must not end the scan of the others.
            log.exception("document_crashed", url=reading.url)
            return await self._close_failed(reading, SiteatlasError())
        finally:
            if reading.claimed_url is not None:
                was_read = reading.is_open or reading.unchanged_by is not None
                self._targets.release(candidate, reading.claimed_url, was_read=was_read)

    async def _skip_done(self, candidate: CrawlCandidate, known: KnownDocument) -> VisitResult:
        """Skip a document finished earlier in this scan; only follow its children."""
        await self._emit_verdict(candidate, Verdict.ACCEPTED, ProblemCode.DONE_BEFORE)
        return await self._follow_known(candidate, known)

    async def _follow_known(self, candidate: CrawlCandidate, known: KnownDocument) -> VisitResult:
        """Follow the known children of a document that is not read again."""
        await self._follow(candidate, known.url, known.children, self._client)
        return VisitResult(DocumentOutcome.UNCHANGED)

    async def _fetch_with_fallback(self, reading: FetchedDocument) -> VisitResult:
        """Fetch a document with gzip; without compression if the response has an unknown one."""
        try:
            return await self._fetch(reading, accept_encoding="gzip")
        except EncodingUnsupported:
            return await self._fetch(reading, accept_encoding="identity")

    async def _fetch(self, reading: FetchedDocument, *, accept_encoding: str) -> VisitResult:
        """Request a document, conditionally if it is known, and read it or report it unchanged."""
        async with self._client.get(
            reading.candidate.address,
            validators_of=self._known.validators_to_send,
            accept_encoding=accept_encoding,
        ) as response:
            reading.http_status = response.status
            reading.url = response.address.url
            error = response.error()
            if error is not None:
                raise error
            if response.status == NOT_MODIFIED:
                return await self._close_not_modified(reading)
            return await self._read_new(reading, response)

    async def _read_new(self, reading: FetchedDocument, response: Response) -> VisitResult:
        """Read the document of a response, unless it is a soft 404 or was read before."""
        candidate = reading.candidate
        if candidate.is_guess and reading.url == self.random_path.final_url:
            await self._emit_verdict(
                candidate, Verdict.REJECTED, ProblemCode.SOFT_404, reading=reading
            )
            return VisitResult(DocumentOutcome.UNREAD)
        # Before the URL counts as seen, because an unknown compression leads to a second request.
        reader = DocumentReader(
            response.content_encoding,
            response.charset,
            base_url=response.address.url,
            with_digests=self._known.wants_digests,
        )
        if not await self._claim(reading):
            return VisitResult(None)
        known = self._known.at(reading.url)
        if known is not None and known.done:
            await self._report_duplicate(reading)
            return await self._follow_known(candidate, known)
        response.refuse_oversize()
        body = HeldBody(response.chunks(), response.charset)
        try:
            comparable = known is not None and self._known.may_be_unchanged(known)
            if known and comparable and await has_known_content(body, known, response):
                reading.wire_bytes = body.size
                return await self._close_same_content(reading, known, response)
            reader.known_entries = await self._known.load_entries(known, body)
            await self._read_body(reading, reader, response, body)
        finally:
            body.release()
            if not reading.is_open:
                await self._known.forget_entries(response.address.url)
        return await self._close_complete(reading, response)

    async def _claim(self, reading: FetchedDocument) -> bool:
        """Claim the final URL; False, and a report, if this scan has read it or reads it anyway."""
        if await self._targets.claim(reading.candidate, reading.url):
            reading.claimed_url = reading.redirected_to
            return True
        await self._report_duplicate(reading)
        return False

    async def _report_duplicate(self, reading: FetchedDocument) -> None:
        """Report a candidate that redirects to a document which this scan has read."""
        await self._emit_verdict(
            reading.candidate, Verdict.SKIPPED, ProblemCode.DUPLICATE, reading=reading
        )

    async def _read_body(
        self,
        reading: FetchedDocument,
        reader: DocumentReader,
        response: Response,
        body: HeldBody,
    ) -> None:
        """Stream the body of a response through a `DocumentReader` and process its results."""
        reading.reader = reader
        reading.placement = Placement(
            response.address,
            self._frontier.hosts,
            reader.tally,
            anywhere=reading.candidate.named_by_robots,
        )
        reading.duplicates = DuplicateUrls(reader.tally) if self._find_duplicates else None
        try:
            async for chunk in body.chunks():
                await self._process_results(reading, reader.feed(chunk))
        except ScanError:
            await self._process_results(reading, reader.read_buffered())
            raise
        await self._process_results(reading, reader.close())

    async def _process_results(
        self, reading: FetchedDocument, results: Iterable[ReadResult]
    ) -> None:
        """Process results as they are produced, each in a time slice of the event loop."""
        remaining = iter(results)
        while True:
            # Results take several times the memory of the bytes they are read from, so only one
            # document of a scan may wait with a result for the consumer of the events.
            async with self._one_at_a_time:
                async with fair_loop().time_slice():
                    result = next(remaining, None)
                if result is None:
                    return
                await self._process_result(reading, result)

    async def _process_result(self, reading: FetchedDocument, result: ReadResult) -> None:
        """Follow the children and collect the entries of a result, up to the URL limit."""
        opened = reading.opened()
        if opened is not None:
            await self._emit_verdict(reading.candidate, Verdict.ACCEPTED, None, reading=reading)
            await self._emit(opened)
        if result.children:
            reading.children_found += len(result.children)
            if await self._follow(reading.candidate, reading.url, result.children, self._client):
                reading.children_left_out = True
        if result.entry_count:
            await self._process_entries(reading, result)

    async def _process_entries(self, reading: FetchedDocument, result: ReadResult) -> None:
        """Collect the entries of a result, up to the URL limit; send them when there are many."""
        found = result.entry_count
        result.limit_entries(self._budget.admit(found))
        columns = result.columns
        if reading.placement is not None:
            reading.placement.note(columns.urls)
            reading.placement.note(result.recognized.urls)
        if reading.duplicates is not None:
            reading.duplicates.note_repeated(columns.urls)
        # Entries that may list a URL again are sent in the order of the document.
        if result.recognized or reading.unsent_recognized:
            await self._send_entries(reading)
        reading.unsent.extend(columns)
        reading.unsent_recognized.extend(result.recognized)
        # Extras may be large, so entries that have some are sent at once.
        if reading.unsent_count >= ENTRIES_PER_EVENT or (columns.extras and columns.extras[-1]):
            await self._send_entries(reading)
        if result.entry_count < found:
            raise UrlLimitReached

    async def _send_entries(self, reading: FetchedDocument) -> None:
        """Emit the entries of the document that were not sent yet."""
        if reading.unsent_count:
            await self._emit(reading.take_unsent())

    async def _close_complete(self, reading: FetchedDocument, response: Response) -> VisitResult:
        """Close a document that was read to its end, with its validators."""
        reader = reading.reader
        assert reader is not None
        validators = validators_in(response)
        is_whole = response.is_framed or reader.shows_its_end
        reading.proves_removals = is_whole and not reading.children_left_out
        if reading.proves_removals:
            reading.validators = validators
        known = self._known.at(reading.url)
        reading.validators_lied = known is not None and lied(
            known, validators, reader.content_hash()
        )
        self._note_duplicate(reading)
        return await self._close_document(reading, DocumentOutcome.COMPLETE)

    def _note_duplicate(self, reading: FetchedDocument) -> None:
        """Record a document whose content is the same as that of another one of the scan."""
        reader = reading.reader
        if reader is None or not reading.has_content:
            return
        if not self._frontier.is_new_content(reader.content_hash().content):
            reader.tally.note(ProblemCode.DUPLICATE_CONTENT)

    async def _close_not_modified(self, reading: FetchedDocument) -> VisitResult:
        """Close a document that the site reports as unchanged."""
        known = self._known.at(reading.url)
        if known is None:
            raise HttpProtocolError
        if not await self._claim(reading):
            return VisitResult(None)
        reading.validators = known.validators
        return await self._close_unchanged(reading, known, UnchangedBy.NOT_MODIFIED)

    async def _close_same_content(
        self, reading: FetchedDocument, known: KnownDocument, response: Response
    ) -> VisitResult:
        """Close a document whose bytes are those of the last complete read."""
        reading.validators = validators_in(response)
        return await self._close_unchanged(reading, known, UnchangedBy.CONTENT_HASH)

    async def _close_unchanged(
        self, reading: FetchedDocument, known: KnownDocument, by: UnchangedBy
    ) -> VisitResult:
        """Close an unchanged document; follow its known children and count its known entries."""
        reading.unchanged_by = by
        reading.content_hash, reading.type = known.content_hash, known.type
        content_hash = ContentHash.parse(known.content_hash)
        if content_hash is not None:
            self._frontier.is_new_content(content_hash.content)
        if self._budget.admit(known.entry_count) < known.entry_count:
            # Documents that are read beside it have used up the limit since it was requested.
            await self._emit(ProblemSeen(ProblemCode.URL_LIMIT.value, reading.url))
        await self._emit_verdict(
            reading.candidate, Verdict.ACCEPTED, ProblemCode.UNCHANGED, reading=reading
        )
        await self._follow(reading.candidate, reading.url, known.children, self._client)
        return await self._close_document(reading, DocumentOutcome.UNCHANGED)

    async def _close_failed(self, reading: FetchedDocument, error: SiteatlasError) -> VisitResult:
        """Close a document that failed; for a failed guess, only the verdict is reported."""
        outcome = DocumentOutcome.CUT if reading.has_content else DocumentOutcome.UNREAD
        candidate = reading.candidate
        if not reading.is_open:
            is_catch_all_page = isinstance(error, HtmlInstead) and self.random_path.accepts_any_path
            reason = ProblemCode.SOFT_404 if candidate.is_guess and is_catch_all_page else error
            await self._emit_verdict(candidate, Verdict.REJECTED, reason, reading=reading)
            # A redirect moves a document only to where it can be read: during maintenance, all of
            # them may redirect to the same page.
            reading.url = reading.requested_url
        if (candidate.is_guess or candidate.may_be_page) and not reading.is_open:
            return VisitResult(outcome, error)
        return await self._close_document(reading, outcome, error)

    async def _close_document(
        self,
        reading: FetchedDocument,
        outcome: DocumentOutcome,
        error: SiteatlasError | None = None,
    ) -> VisitResult:
        """Send the remaining entries and the event for the end of the document."""
        await self._send_entries(reading)
        await self._emit(reading.closed(outcome, error))
        return VisitResult(outcome, error, reading.is_open)

    async def _emit_verdict(
        self,
        candidate: CrawlCandidate,
        verdict: Verdict,
        reason: ProblemCode | SiteatlasError | None,
        *,
        reading: FetchedDocument | None = None,
    ) -> None:
        """Emit the verdict on a candidate; children of an index only have one if skipped."""
        if candidate.is_child and verdict is not Verdict.SKIPPED:
            return
        reader = reading.reader if reading else None
        await self._emit(
            CandidateJudged(
                url=candidate.address.url,
                method=candidate.method,
                verdict=verdict,
                reason=_verdict_reason(reason),
                http_status=reading.http_status if reading else None,
                type=reader.type if reader else reading.type if reading else None,
                final_url=reading.redirected_to if reading else None,
            )
        )


def _verdict_reason(reason: ProblemCode | SiteatlasError | None) -> str | None:
    """The code in the verdict on a candidate of the crawl."""
    if isinstance(reason, SiteatlasError):
        return reason.code
    return None if reason is None else reason.value
