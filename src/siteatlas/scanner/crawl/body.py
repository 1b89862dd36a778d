"""Reads the bodies of documents as streams, and reports the entries and children that they list.

A `BodyReader` reads in this process or, if the scan has reader processes, in one of those. A
`HeldBody` keeps what has arrived of a body that may have to be looked at twice: in memory up to a
limit, above that in a temporary file.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryFile
from threading import Lock
from typing import IO

from siteatlas.aio import LoopLocal, fair_loop
from siteatlas.errors import ScanError, UrlLimitReached
from siteatlas.logs import get_logger
from siteatlas.net.client import HttpClient
from siteatlas.net.response import Response
from siteatlas.scanner.crawl.document import (
    CrawlCandidate,
    FetchedDocument,
    Placement,
    emit_verdict,
)
from siteatlas.scanner.crawl.frontier import Frontier, UrlLimit
from siteatlas.scanner.crawl.readers import RemoteReaders, read_document
from siteatlas.scanner.events import (
    ChildLink,
    Emit,
    EntriesRead,
    EntryColumns,
    Verdict,
)
from siteatlas.scanner.reading.decoding import WireHash
from siteatlas.scanner.reading.document import DocumentReader, DuplicateUrls
from siteatlas.scanner.reading.entries import ReadResult

log = get_logger("scanner")

FILE_CHUNK_BYTES = 1024 * 1024

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
            start = partial(
                read_document,
                address=response.address,
                content_encoding=response.content_encoding,
                charset=response.charset,
                site_host=self._frontier.hosts.site,
                anywhere=reading.candidate.named_by_robots,
                find_duplicates=self._find_duplicates,
                encode=readers.encode,
            )
            async with aclosing(process.results(start, body.chunks())) as results:
                async for reading.reader, result in results:
                    await self._process_result(reading, result)
        else:
            with pool.local_document():
                await self._read_here(reading, reader, response, body)
        if reading.reader is not None:
            pool.note_size(reading.reader.decoded_bytes)

    async def send_entries(self, reading: FetchedDocument) -> None:
        """Emit the entries of the document that were not sent yet."""
        if len(reading.unsent):
            await self._emit(reading.take_unsent())

    async def _read_here(
        self,
        reading: FetchedDocument,
        reader: DocumentReader,
        response: Response,
        body: HeldBody,
    ) -> None:
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
        encoded = result.encoded
        if encoded is not None:
            # A reader process has judged these entries; such a scan has no limit.
            reading.entries_sent += encoded.found
            await self._emit(EntriesRead(reading.url, EntryColumns(), encoded=encoded))
        elif len(result.columns):
            await self._process_entries(reading, result)

    async def _process_entries(self, reading: FetchedDocument, result: ReadResult) -> None:
        found = len(result.columns)
        columns = result.columns.head(self._budget.admit(found))
        if reading.placement is not None:
            reading.placement.note(columns.urls)
        if reading.duplicates is not None:
            reading.duplicates.note_repeated(columns.urls)
        reading.unsent.extend(reading.unsent_columns(columns))
        # Extras may be large, so entries that have some are sent at once.
        if len(reading.unsent) >= 500 or (columns.extras and columns.extras[-1]):
            await self.send_entries(reading)
        if len(columns) < found:
            raise UrlLimitReached


@dataclass(frozen=True, slots=True)
class HoldLimits:
    """How many bytes may be held: in memory for one body and for all, and in all files."""

    document_memory: int = 16 * 1024 * 1024
    process_memory: int = 64 * 1024 * 1024
    process_files: int = 512 * 1024 * 1024


@dataclass(slots=True)
class HeldBytes:
    """How many bytes all held bodies of a process have, in memory and in files."""

    memory: int = 0
    files: int = 0


_held_bytes = LoopLocal(HeldBytes)


def held_bytes() -> HeldBytes:
    """The count of the running event loop; a process that scans has one."""
    return _held_bytes.get()


class HeldBody:
    """One body: `matches` and `receive` hold it, `chunks` hands it on.

    It is held until its hash shows whether the document is unchanged. A body that differs, or that
    no limit has room for, is handed on to be read; no bytes are requested twice. `release` drops it
    and must always be called.

    A fault while it is received is raised by `chunks`, after the bytes before it.
    """

    def __init__(
        self,
        incoming: AsyncIterator[bytes],
        charset: str | None = None,
        limits: HoldLimits = HoldLimits(),
    ) -> None:
        self._incoming = incoming
        self._limits = limits
        self._hash = WireHash(charset)
        self._chunks: deque[bytes] = deque()
        self._memory_bytes = 0
        self._file: _HeldFile | None = None
        self._file_bytes = 0
        self._fault: ScanError | None = None
        self.size = 0

    async def matches(self, wire_hash: str, length: int | None = None) -> bool:
        """Whether the whole body has this hash; returns False as soon as that cannot be."""
        return await self.receive(length) and self._hash.hexdigest() == wire_hash

    async def receive(self, max_bytes: int | None = None) -> bool:
        """Receive the body and hold it; False if it is longer, does not fit, or has a fault."""
        try:
            async for chunk in self._incoming:
                self._hash.update(chunk)
                self.size += len(chunk)
                too_long = max_bytes is not None and self.size > max_bytes
                if not await self._hold(chunk) or too_long:
                    return False
        except ScanError as fault:
            self._fault = fault
        return self._fault is None

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes that are held, then those that have not arrived yet."""
        position = 0
        while self._file is not None and position < self._file_bytes:
            size = min(FILE_CHUNK_BYTES, self._file_bytes - position)
            chunk = await asyncio.to_thread(self._file.read, position, size)
            position += len(chunk)
            yield chunk
        while self._chunks:
            chunk = self._chunks.popleft()
            self._count_memory(-len(chunk))
            yield chunk
        if self._fault is not None:
            raise self._fault
        async for chunk in self._incoming:
            yield chunk

    def release(self) -> None:
        """Drop what is held."""
        self._chunks.clear()
        self._count_memory(-self._memory_bytes)
        held_bytes().files -= self._file_bytes
        self._file_bytes = 0
        if self._file is not None:
            self._file.close()

    async def _hold(self, chunk: bytes) -> bool:
        # Thousands of tiny objects would take several times the memory that is counted.
        if self._chunks and len(self._chunks[-1]) < 4096:
            self._chunks[-1] += chunk
        else:
            self._chunks.append(chunk)
        self._count_memory(len(chunk))
        if self._file is not None:
            return self._memory_bytes < FILE_CHUNK_BYTES or await self._move_to_file()
        limits = self._limits
        fits = (
            self._memory_bytes <= limits.document_memory
            and held_bytes().memory <= limits.process_memory
        )
        return fits or await self._move_to_file()

    async def _move_to_file(self) -> bool:
        if held_bytes().files + self._memory_bytes > self._limits.process_files:
            return False
        self._file = self._file or _HeldFile()
        try:
            await asyncio.to_thread(self._file.write, self._file_bytes, tuple(self._chunks))
        except OSError as error:
            log.warning("temporary_file_failed", error=error.strerror)
            return False
        self._file_bytes += self._memory_bytes
        held_bytes().files += self._memory_bytes
        self._chunks.clear()
        self._count_memory(-self._memory_bytes)
        return True

    def _count_memory(self, size: int) -> None:
        self._memory_bytes += size
        held_bytes().memory += size


class _HeldFile:
    """A temporary file for a held body; it has no name and vanishes with the process.

    Used in threads, one call at a time. A cancelled task cannot stop a call that is under way, so
    `close` waits for it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._file: IO[bytes] | None = None
        self._closed = False

    def write(self, position: int, chunks: Iterable[bytes]) -> None:
        """Write all chunks at `position` or raise OSError; a retry overwrites a partial write."""
        with self._lock:
            if self._file is None and not self._closed:
                # Without a buffer, a failed write shows at once.
                self._file = TemporaryFile(buffering=0)  # noqa: SIM115 closed by `close`
            if self._file is not None:
                self._file.seek(position)
            for chunk in chunks:
                rest = memoryview(chunk)
                while rest and self._file is not None:
                    rest = rest[self._file.write(rest) :]

    def read(self, position: int, size: int) -> bytes:
        with self._lock:
            if self._file is None:
                raise OSError("the file is closed")
            self._file.seek(position)
            found = self._file.read(size)
            if not found:
                raise OSError("the file was truncated")
            return found

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._file is not None:
                self._file.close()
                self._file = None
