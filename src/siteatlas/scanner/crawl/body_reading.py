"""Reads the bodies of documents as streams, and reports the entries and children that they list.

A scan with reader processes has some documents read there; all others are read by this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING

from siteatlas.aio.fairness import fair_loop
from siteatlas.errors import ScanError, UrlLimitReached
from siteatlas.net.client import HttpClient
from siteatlas.net.response import Response
from siteatlas.scanner.crawl.candidates import CrawlCandidate
from siteatlas.scanner.crawl.fetched_document import FetchedDocument
from siteatlas.scanner.crawl.frontier import Frontier, UrlLimit
from siteatlas.scanner.crawl.held_body import HeldBody
from siteatlas.scanner.crawl.placement import Placement
from siteatlas.scanner.crawl.reader_pool import RemoteReaders
from siteatlas.scanner.crawl.verdicts import emit_verdict
from siteatlas.scanner.events import (
    ChildLink,
    Emit,
    EncodedEntries,
    EntriesRead,
    EntryColumns,
    Verdict,
)
from siteatlas.scanner.reading.document import DocumentReader
from siteatlas.scanner.reading.duplicates import DuplicateUrls
from siteatlas.scanner.reading.tally import ReadResult

if TYPE_CHECKING:
    from siteatlas.scanner.crawl.reader_client import ReaderProcess
    from siteatlas.scanner.crawl.reader_messages import DocumentTask

ENTRIES_PER_EVENT = 500

# Returns whether a filter left out some of the children.
FollowChildren = Callable[[CrawlCandidate, str, Iterable[ChildLink], HttpClient], Awaitable[bool]]


class BodyReader:
    """Reads the bodies of one scan; several at the same time."""

    def __init__(
        self,
        client: HttpClient,
        frontier: Frontier,
        *,
        budget: UrlLimit,
        emit: Emit,
        follow: FollowChildren,
        find_duplicates: bool,
        readers: RemoteReaders | None,
    ) -> None:
        self._client = client
        self._frontier = frontier
        self._budget = budget
        self._emit = emit
        self._follow = follow
        self._find_duplicates = find_duplicates
        self._readers = readers
        self._one_at_a_time = asyncio.Lock()

    async def read(
        self,
        reading: FetchedDocument,
        reader: DocumentReader,
        response: Response,
        body: HeldBody,
    ) -> None:
        """Read a body with `reader`, or in a reader process; raises ReaderLost if that ended."""
        readers = self._readers
        if readers is None or reading.reader_lost:
            await self._read_here(reading, reader, response, body)
            return
        pool = readers.pool
        process = await pool.process_for(response, self._frontier.documents_left)
        if process is not None:
            task = self._task(reading, response, readers)
            await self._read_elsewhere(reading, process, task, body)
        else:
            with pool.local_document():
                await self._read_here(reading, reader, response, body)
        if reading.reader is not None:
            pool.note_size(reading.reader.decoded_bytes)

    async def send_entries(self, reading: FetchedDocument) -> None:
        """Emit the entries of the document that were not sent yet."""
        if reading.unsent_count:
            await self._emit(reading.take_unsent())

    def _task(
        self, reading: FetchedDocument, response: Response, readers: RemoteReaders
    ) -> DocumentTask:
        """The document of a response as a task for a reader process."""
        # Late, because most scans have none.
        from siteatlas.scanner.crawl.reader_messages import DocumentTask

        return DocumentTask(
            address=response.address,
            content_encoding=response.content_encoding,
            charset=response.charset,
            site_host=self._frontier.hosts.site,
            anywhere=reading.candidate.named_by_robots,
            find_duplicates=self._find_duplicates,
            encode=readers.encode,
        )

    async def _read_elsewhere(
        self,
        reading: FetchedDocument,
        process: ReaderProcess,
        task: DocumentTask,
        body: HeldBody,
    ) -> None:
        """Stream a body to a reader process and process its results."""
        async with (
            process.document(task) as document,
            aclosing(document.results(body.chunks())) as results,
        ):
            async for result in results:
                reading.reader = document.summary
                await self._process_result(reading, result)

    async def _read_here(
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
            await emit_verdict(
                self._emit, reading.candidate, Verdict.ACCEPTED, None, reading=reading
            )
            await self._emit(opened)
        children = reading.unsent_children(result.children)
        if children:
            reading.children_found += len(children)
            if await self._follow(reading.candidate, reading.url, children, self._client):
                reading.children_left_out = True
        if result.encoded is not None:
            await self._send_encoded(reading, result.encoded)
        elif result.entry_count:
            await self._process_entries(reading, result)

    async def _send_encoded(self, reading: FetchedDocument, encoded: EncodedEntries) -> None:
        """Emit entries of a reader process, which has judged them; such a scan has no limit."""
        reading.entries_sent += encoded.found
        await self._emit(EntriesRead(reading.url, EntryColumns(), encoded=encoded))

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
            await self.send_entries(reading)
        reading.unsent.extend(reading.unsent_columns(columns))
        reading.unsent_recognized.extend(result.recognized)
        # Extras may be large, so entries that have some are sent at once.
        if reading.unsent_count >= ENTRIES_PER_EVENT or (columns.extras and columns.extras[-1]):
            await self.send_entries(reading)
        if result.entry_count < found:
            raise UrlLimitReached
