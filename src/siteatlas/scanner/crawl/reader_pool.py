"""The reader processes of one command: started when a site is large, and given whole documents.

The first process reads documents too. It keeps everything else: requests, limits, the order of
events and what is done with them. A process that ends loses nothing: its documents are read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Self

from siteatlas.logs import get_logger
from siteatlas.net.response import Response

if TYPE_CHECKING:
    from siteatlas.scanner.crawl.reader_client import ReaderProcess
    from siteatlas.scanner.crawl.reader_messages import EncodeEntries

log = get_logger("scanner")

MIB = 1024 * 1024
# A process takes as long to start as reading a few MiB does; small documents gain nothing.
MIN_SITE_BYTES = 16 * MIB
MIN_DOCUMENT_BYTES = MIB // 2
# What sitemaps usually are compressed to; only an estimate is needed.
GZIP_RATIO = 8


class ReaderLost(Exception):
    """A reader process has ended before its document."""


class RemoteReaders(NamedTuple):
    """The reader processes that a scan may use, and how they encode the entries of its site."""

    pool: ReaderPool
    encode: EncodeEntries


class ReaderPool:
    """Up to `count` reader processes, shared by all scans of one command; used as a context."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._processes: list[ReaderProcess] = []
        self._starting = asyncio.Lock()
        self._local_count = 0
        self._last_size = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        for process in self._processes:
            await process.end()
        self._processes.clear()

    async def process_for(self, response: Response, documents_left: int) -> ReaderProcess | None:
        """A reader process for the document of a response; None if this process should read it.

        `documents_left`, this one included, are those that the scan knows and has not read.
        """
        size = self._expected_size(response)
        if size < MIN_DOCUMENT_BYTES:
            return None
        if self._count and documents_left > 1 and size * documents_left >= MIN_SITE_BYTES:
            await self._start_all()
        running = [process for process in self._processes if not process.is_lost]
        if not running:
            return None
        idlest = min(running, key=lambda process: process.document_count)
        return idlest if idlest.document_count <= self._local_count else None

    @contextmanager
    def local_document(self) -> Iterator[None]:
        """This process reads a document while the block runs."""
        self._local_count += 1
        try:
            yield
        finally:
            self._local_count -= 1

    def note_size(self, decoded_bytes: int) -> None:
        """Remember the size of a document that was read: the next one is often alike."""
        self._last_size = decoded_bytes

    async def _start_all(self) -> None:
        """Start all reader processes, once; a scan needs none of them."""
        # Late, because most scans start none.
        from siteatlas.scanner.crawl.reader_client import ReaderProcess

        async with self._starting:
            while self._count:
                self._count -= 1
                try:
                    self._processes.append(await ReaderProcess.start())
                except OSError as error:
                    log.debug("reader_process_failed", error=error.strerror)

    def _expected_size(self, response: Response) -> int:
        """About how many bytes the document of a response will have when decompressed."""
        length = response.content_length
        if length is None:
            return self._last_size
        is_compressed = response.content_encoding or response.address.path.endswith(".gz")
        return length * GZIP_RATIO if is_compressed else length
