"""Visits one candidate: requests it, has it read as a stream, and reports how that ended.

A document that earlier scans know is requested with its validators. It is not read again if the
site answers 304, or if the bytes are those of the last complete read. Two candidates that redirect
to one address are read once. Errors of a document never propagate: they are part of the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

from siteatlas.errors import (
    AddressError,
    EncodingUnsupported,
    HtmlInstead,
    HttpProtocolError,
    ScanError,
    SiteatlasError,
)
from siteatlas.logs import get_logger
from siteatlas.net.address import WebAddress
from siteatlas.net.client import HttpClient
from siteatlas.net.response import Response
from siteatlas.scanner.crawl.body import BodyReader, FollowChildren, HeldBody
from siteatlas.scanner.crawl.document import CrawlCandidate, FetchedDocument, emit_verdict
from siteatlas.scanner.crawl.frontier import Frontier, UrlLimit
from siteatlas.scanner.crawl.readers import ReaderLost, RemoteReaders
from siteatlas.scanner.discovery.probes import RandomPathResult
from siteatlas.scanner.events import (
    DocumentOutcome,
    DocumentRequested,
    Emit,
    ProblemSeen,
    UnchangedBy,
    Validators,
    Verdict,
)
from siteatlas.scanner.options import KnownDocument, ScanMemory
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.decoding import ContentHash
from siteatlas.scanner.reading.document import DocumentReader

log = get_logger("scanner")


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
        readers: RemoteReaders | None = None,
        on_text: Callable[[str, str], None] | None = None,
    ) -> None:
        self._client = client
        self._frontier = frontier
        self._known = memory
        self._budget = budget
        self._emit = emit
        self._follow = follow
        self._on_text = on_text
        self._targets = RedirectTargets(frontier)
        self._bodies = BodyReader(
            client,
            frontier,
            budget=budget,
            emit=emit,
            follow=follow,
            find_duplicates=find_duplicates,
            readers=readers,
        )
        self.random_path = RandomPathResult()

    async def visit(self, candidate: CrawlCandidate) -> VisitResult:
        """Fetch and read one candidate; errors are returned in the result."""
        known = self._known.get(candidate.address.url)
        if known is not None and known.done:
            # Finished earlier in this scan: only its children are followed.
            await emit_verdict(self._emit, candidate, Verdict.ACCEPTED, ProblemCode.DONE_BEFORE)
            return await self._follow_known(candidate, known)
        reading = FetchedDocument(candidate=candidate, url=candidate.address.url)
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

    async def _follow_known(self, candidate: CrawlCandidate, known: KnownDocument) -> VisitResult:
        await self._follow(candidate, known.url, known.children, self._client)
        return VisitResult(DocumentOutcome.UNCHANGED)

    async def _fetch_with_fallback(self, reading: FetchedDocument) -> VisitResult:
        """Fetch a document with gzip; again without it if the response has an unknown compression.

        A document whose reader process was lost is fetched and read again by this process.
        """
        try:
            return await self._fetch(reading, accept_encoding="gzip")
        except EncodingUnsupported:
            return await self._fetch(reading, accept_encoding="identity")
        except ReaderLost:
            log.debug("document_read_again", url=reading.url)
            reading.begin_again()
            return await self._fetch(reading, accept_encoding="gzip")

    async def _fetch(self, reading: FetchedDocument, *, accept_encoding: str) -> VisitResult:
        candidate = reading.candidate
        # Where any path leads; nothing is learned by going there again.
        catch_all = self.random_path.final_url if candidate.is_guess else None
        async with self._client.get(
            candidate.address,
            validators_of=self._validators_to_send,
            accept_encoding=accept_encoding,
            stop_at=catch_all,
        ) as response:
            reading.http_status = response.status
            reading.url = response.address.url
            if reading.url == catch_all:
                await emit_verdict(
                    self._emit, candidate, Verdict.REJECTED, ProblemCode.SOFT_404, reading=reading
                )
                return VisitResult(DocumentOutcome.UNREAD)
            error = response.error()
            if error is not None:
                raise error
            if response.status == HTTPStatus.NOT_MODIFIED:
                return await self._close_not_modified(reading)
            return await self._read_new(reading, response)

    async def _read_new(self, reading: FetchedDocument, response: Response) -> VisitResult:
        # Before the URL counts as seen, because an unknown compression leads to a second request.
        url = response.address.url
        reader = DocumentReader(
            response.content_encoding,
            response.charset,
            base_url=url,
            on_text=partial(self._on_text, url) if self._on_text else None,
            judge_left_out=self._on_text is not None,
        )
        if not await self._claim(reading):
            return VisitResult(None)
        known = self._known_at(reading.url)
        if known is not None and known.done:
            await self._report_duplicate(reading)
            return await self._follow_known(reading.candidate, known)
        response.refuse_oversize()
        body = HeldBody(response.chunks(), response.charset)
        try:
            comparable = known is not None and self._budget.fits(known.entry_count)
            if known and comparable and await has_known_content(body, known, response):
                reading.wire_bytes = body.size
                reading.validators = validators_in(response)
                return await self._close_unchanged(reading, known, UnchangedBy.CONTENT_HASH)
            await self._bodies.read(reading, reader, response, body)
        finally:
            body.release()
        return await self._close_complete(reading, response)

    def _known_at(self, url: str) -> KnownDocument | None:
        """The known document at this final URL.

        Validators and hash of another address say nothing about it.
        """
        known = self._known.get(url)
        return known if known is not None and known.url == url else None

    def _validators_to_send(self, address: WebAddress) -> Validators:
        """The validators for a request to this address: only those that it gave itself.

        None for a document with more entries than the scan may still read: it is read, up to that
        limit.
        """
        known = self._known_at(address.url)
        if known and known.may_send_validators and self._budget.fits(known.entry_count):
            return known.validators
        return Validators()

    async def _claim(self, reading: FetchedDocument) -> bool:
        if reading.reader_lost and reading.claimed_url == reading.redirected_to:
            return True
        if await self._targets.claim(reading.candidate, reading.url):
            reading.claimed_url = reading.redirected_to
            return True
        await self._report_duplicate(reading)
        return False

    async def _report_duplicate(self, reading: FetchedDocument) -> None:
        await emit_verdict(
            self._emit, reading.candidate, Verdict.SKIPPED, ProblemCode.DUPLICATE, reading=reading
        )

    async def _close_complete(self, reading: FetchedDocument, response: Response) -> VisitResult:
        reader = reading.reader
        assert reader is not None
        validators = validators_in(response)
        is_whole = response.is_framed or reader.shows_its_end
        reading.proves_removals = is_whole and not reading.children_left_out
        if reading.proves_removals:
            reading.validators = validators
        known = self._known_at(reading.url)
        hashes = reader.content_hash()
        reading.validators_lied = known is not None and lied(known, validators, hashes)
        if reading.has_content and not self._frontier.is_new_content(hashes.content):
            reader.tally.note(ProblemCode.DUPLICATE_CONTENT)
        return await self._close_document(reading, DocumentOutcome.COMPLETE)

    async def _close_not_modified(self, reading: FetchedDocument) -> VisitResult:
        known = self._known_at(reading.url)
        if known is None:
            raise HttpProtocolError
        if not await self._claim(reading):
            return VisitResult(None)
        reading.validators = known.validators
        return await self._close_unchanged(reading, known, UnchangedBy.NOT_MODIFIED)

    async def _close_unchanged(
        self, reading: FetchedDocument, known: KnownDocument, by: UnchangedBy
    ) -> VisitResult:
        reading.unchanged_by = by
        reading.content_hash, reading.type = known.content_hash, known.type
        content_hash = ContentHash.parse(known.content_hash)
        if content_hash is not None:
            self._frontier.is_new_content(content_hash.content)
        if self._budget.admit(known.entry_count) < known.entry_count:
            # Documents that are read concurrently have used up the limit since it was requested.
            await self._emit(ProblemSeen(ProblemCode.URL_LIMIT.value, reading.url))
        await emit_verdict(
            self._emit, reading.candidate, Verdict.ACCEPTED, ProblemCode.UNCHANGED, reading=reading
        )
        await self._follow(reading.candidate, reading.url, known.children, self._client)
        return await self._close_document(reading, DocumentOutcome.UNCHANGED)

    async def _close_failed(self, reading: FetchedDocument, error: SiteatlasError) -> VisitResult:
        outcome = DocumentOutcome.CUT if reading.has_content else DocumentOutcome.UNREAD
        candidate = reading.candidate
        if not reading.is_open:
            is_catch_all_page = isinstance(error, HtmlInstead) and self.random_path.accepts_any_path
            reason = ProblemCode.SOFT_404 if candidate.is_guess and is_catch_all_page else error
            await emit_verdict(self._emit, candidate, Verdict.REJECTED, reason, reading=reading)
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
        await self._bodies.send_entries(reading)
        await self._emit(reading.closed(outcome, error))
        return VisitResult(outcome, error, reading.is_open)


async def has_known_content(body: HeldBody, known: KnownDocument, response: Response) -> bool:
    """Whether the body of the response is that of the last complete read, byte by byte."""
    hashes = ContentHash.parse(known.content_hash)
    length = known.content_length or None
    announced = response.content_length
    if hashes is None or (length and announced is not None and announced != length):
        return False
    return await body.matches(hashes.wire, length)


def validators_in(response: Response) -> Validators:
    """The validators of a response, for later conditional requests."""
    return Validators(response.headers.get("ETag"), response.headers.get("Last-Modified"))


def lied(known: KnownDocument, given: Validators, hashes: ContentHash) -> bool:
    """Whether the validators of a complete read are the known ones although its content differs.

    A server compares the date only if there is no ETag.
    """
    before = ContentHash.parse(known.content_hash)
    if before is None or before.content == hashes.content:
        return False
    if known.validators.etag or given.etag:
        return known.validators.etag == given.etag
    return (
        known.validators.last_modified is not None
        and known.validators.last_modified == given.last_modified
    )


class RedirectTargets:
    """The targets that visits are reading at the moment; the frontier knows those that were read.

    Every claim is released, whatever became of the visit.
    """

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._under_way: dict[str, asyncio.Event] = {}

    async def claim(self, candidate: CrawlCandidate, url: str) -> bool:
        """Claim the final URL of a candidate; False if it was read before, or has a visit of its
        own. Waits while another visit reads it.
        """
        if url == candidate.address.url:
            return True
        while not self._frontier.mark_seen(url):
            other = self._under_way.get(url)
            if other is None:
                return False
            await other.wait()
        self._under_way[url] = asyncio.Event()
        return True

    def release(self, candidate: CrawlCandidate, url: str, *, was_read: bool) -> None:
        """End a claim; a target that was not read may be claimed again."""
        done = self._under_way.pop(url, None)
        if done is not None:
            # For a path that was only guessed, the page behind it need not be looked at twice.
            if not was_read and not candidate.is_guess:
                self._frontier.unmark_seen(url)
            done.set()
