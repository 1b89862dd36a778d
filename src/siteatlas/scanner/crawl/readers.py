"""The reader processes of one command: started when a site is large, and given whole documents.

The first process reads documents too. It keeps everything else: requests, limits, the order of
events and what is done with them. A process that ends loses nothing: its documents are read again.
Each has one socket. A message is a head, a pickled value and raw bytes, each but the head possibly
empty; the pickles come from processes of the same command only. `reader_process.py` is what such a
process runs: `read_documents`.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from struct import Struct
from typing import NamedTuple, Self

from siteatlas.errors import ScanError
from siteatlas.logs import get_logger
from siteatlas.net.address import WebAddress
from siteatlas.net.response import Response
from siteatlas.scanner.crawl.document import Placement, SiteHosts
from siteatlas.scanner.events import ChildLink, EncodedEntries, EntriesRead, SitemapType
from siteatlas.scanner.reading.decoding import ContentHash
from siteatlas.scanner.reading.document import DocumentReader, DuplicateUrls
from siteatlas.scanner.reading.entries import ReadResult, Tally

log = get_logger("scanner")

# A process takes as long to start as reading a few MiB does; small documents gain nothing.
MIN_SITE_BYTES = 16 * 1024 * 1024
MIN_DOCUMENT_BYTES = 512 * 1024

EncodeEntries = Callable[[EntriesRead], EncodedEntries]


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
        async with self._starting:
            while self._count:
                self._count -= 1
                try:
                    self._processes.append(await ReaderProcess.start())
                except OSError as error:
                    log.debug("reader_process_failed", error=error.strerror)

    def _expected_size(self, response: Response) -> int:
        length = response.content_length
        if length is None:
            return self._last_size
        is_compressed = response.content_encoding or response.address.path.endswith(".gz")
        # What sitemaps usually are compressed to; only an estimate is needed.
        return length * 8 if is_compressed else length


class RemoteReaders(NamedTuple):
    """The reader processes that a scan may use, and how they encode the entries of its site."""

    pool: ReaderPool
    encode: EncodeEntries


class ReaderLost(Exception):
    """A reader process has ended before its document."""


class ReaderProcess:
    """A running reader process and the documents that it reads."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        incoming: asyncio.StreamReader,
        outgoing: asyncio.StreamWriter,
    ) -> None:
        self.is_lost = False
        self._process = process
        self._incoming = incoming
        self._outgoing = outgoing
        self._documents: dict[int, asyncio.Queue[ReceivedMessage | None]] = {}
        self._number = 0
        self._receiving = asyncio.create_task(self._receive_all())

    @classmethod
    async def start(cls) -> Self:
        """Start a process that ends when its socket is closed, even if this process is killed."""
        ours, theirs = socket.socketpair()
        with theirs:
            for end in (ours, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1024 * 1024)
            try:
                process = _start_program(theirs.fileno())
            except OSError:
                ours.close()
                raise
        streams = await asyncio.open_connection(sock=ours, limit=512 * 1024)
        return cls(process, *streams)

    @property
    def document_count(self) -> int:
        """How many documents the process reads at the moment."""
        return len(self._documents)

    async def results(
        self, start: StartReading, chunks: AsyncIterator[bytes]
    ) -> AsyncGenerator[tuple[ReadSummary, ReadResult], None]:
        """Have the bytes of a body read: each result, with what is known of the document by then.

        The last one is empty and comes with the whole summary. Raises the fault of the transfer or
        of the document after that, or ReaderLost.
        """
        self._number += 1
        number, summary = self._number, ReadSummary()
        # Of up to 256 KiB each; a slow consumer of the scan stops the process with a few of them.
        received = self._documents[number] = asyncio.Queue[ReceivedMessage | None](2)
        sending = asyncio.create_task(self._send_body(number, start, chunks))
        try:
            while True:
                message = await received.get()
                if message is None:
                    raise ReaderLost
                value, data = message
                if isinstance(value, ReadSummary):
                    break
                summary.type, children, encoded = value
                encoded = encoded and encoded._replace(data=data)
                yield summary, ReadResult(children=children, encoded=encoded)
            yield value, ReadResult()
            if value.error is not None:
                raise value.error
            fault = await sending
            if fault is not None:
                raise fault
        finally:
            del self._documents[number]
            # So that a message that waits here does not hold up those of other documents.
            while not received.empty():
                received.get_nowait()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            self._write(number, MessageKind.DROP)

    async def end(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        self._receiving.cancel()
        self._outgoing.close()
        with suppress(OSError):
            await self._outgoing.wait_closed()

    async def _send_body(
        self, number: int, start: StartReading, chunks: AsyncIterator[bytes]
    ) -> ScanError | None:
        await self._send(number, MessageKind.OPEN, start)
        try:
            async for chunk in chunks:
                await self._send(number, MessageKind.DATA, None, chunk)
        except ScanError as fault:
            await self._send(number, MessageKind.FAULT)
            return fault
        await self._send(number, MessageKind.END)
        return None

    async def _send(
        self, number: int, kind: MessageKind, value: object = None, data: bytes = b""
    ) -> None:
        """Send a message to the reader process; waits while it is behind.

        One that cannot be sent is no error: `_receive_all` notices a lost process.
        """
        self._write(number, kind, value, data)
        with suppress(OSError):
            await self._outgoing.drain()

    def _write(
        self, number: int, kind: MessageKind, value: object = None, data: bytes = b""
    ) -> None:
        if not self.is_lost:
            self._outgoing.write(message(number, kind, value, data))

    async def _receive_all(self) -> None:
        try:
            while True:
                await self._receive_message()
        except (OSError, EOFError):
            self.is_lost = True
            log.debug("reader_process_lost", pid=self._process.pid)
        for received in [*self._documents.values()]:
            await received.put(None)

    async def _receive_message(self) -> None:
        head = HEAD.unpack(await self._incoming.readexactly(HEAD.size))
        number, _, value_size, data_size = head
        value = pickle.loads(await self._incoming.readexactly(value_size))  # noqa: S301 our own
        data = await self._incoming.readexactly(data_size)
        if number in self._documents:
            await self._documents[number].put((value, data))


def _start_program(descriptor: int) -> subprocess.Popen[bytes]:
    program = "siteatlas.scanner.crawl.reader_process"
    return subprocess.Popen(
        # -P: no module is imported from the current directory.
        [sys.executable, "-P", "-m", program, str(descriptor)],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # An interrupt on the terminal is for the first process, which then ends this one.
        process_group=0,
    )


@dataclass(slots=True)
class ReadSummary:
    """The state of a document in a reader process, with the attributes of a `DocumentReader`.

    Complete after the last message only; before that, the type at most is known.
    """

    type: SitemapType | None = None
    tally: Tally = field(default_factory=Tally)
    wire_bytes: int = 0
    decoded_bytes: int = 0
    is_window: bool = False
    shows_its_end: bool = False
    hashes: ContentHash = ContentHash("", "")
    error: ScanError | None = None

    def content_hash(self) -> ContentHash:
        return self.hashes


class MessageKind(IntEnum):
    """What a message says about its document.

    To the process: `open`, then `data`, then `end`, or `fault` if the transfer failed; `drop` if
    nobody waits for the document any more. From the process: `result`, then `summary`.
    """

    OPEN = 1
    DATA = 2
    END = 3
    FAULT = 4
    DROP = 5
    RESULT = 6
    SUMMARY = 7


# The number of the document, the kind, and the sizes of the value and of the bytes.
HEAD = Struct("<IBII")


# What a reader process has found: type, children and counts of the encoded entries; or the summary.
Found = tuple[SitemapType | None, list[ChildLink], EncodedEntries | None]
ReceivedMessage = tuple[Found | ReadSummary, bytes]
Send = Callable[[MessageKind, object, bytes], None]
# The reading of one document in a reader process, which is sent its messages and ends with it.
Reading = Generator[None, tuple[MessageKind, bytes], None]
StartReading = Callable[[Send], Reading]


def message(document: int, kind: MessageKind, value: object = None, data: bytes = b"") -> bytes:
    """A message as bytes."""
    pickled = b"" if value is None else pickle.dumps(value)
    return HEAD.pack(document, kind, len(pickled), len(data)) + pickled + data


def read_document(
    send: Send,
    *,
    address: WebAddress,
    content_encoding: str | None,
    charset: str | None,
    site_host: str,
    anywhere: bool,
    find_duplicates: bool,
    encode: EncodeEntries,
) -> Reading:
    """Read, judge and count one document in a reader process as `body.py` does it."""
    reader = DocumentReader(content_encoding, charset, base_url=address.url)
    placement = Placement(address, SiteHosts(site_host), reader.tally, anywhere=anywhere)
    duplicates = DuplicateUrls(reader.tally) if find_duplicates else None
    unsent: list[EncodedEntries] = []
    sent_type: SitemapType | None = None

    def process(results: Iterable[ReadResult]) -> None:
        for result in results:
            urls = result.columns.urls
            if urls:
                placement.note(urls)
                if duplicates is not None:
                    duplicates.note_repeated(urls)
                unsent.append(encode(EntriesRead(address.url, result.columns)))
            # Each message costs the first process about as much as encoding a few entries.
            is_much = sum(len(entries.data) for entries in unsent) >= 256 * 1024
            if is_much or result.children or reader.type is not sent_type:
                send_results(result.children)

    def send_results(children: list[ChildLink]) -> None:
        nonlocal sent_type
        counts = [sum(column) for column in list(zip(*unsent, strict=True))[1:]]
        found = reader.type, children, EncodedEntries(b"", *counts) if counts else None
        # As raw bytes, because a pickle would copy them once more on each side.
        send(MessageKind.RESULT, found, b"".join([entries.data for entries in unsent]))
        unsent.clear()
        sent_type = reader.type

    error = None
    kind, data = yield
    try:
        while kind is MessageKind.DATA:
            process(reader.feed(data))
            kind, data = yield
        if kind is MessageKind.END:
            process(reader.close())
    except ScanError as fault:
        error = fault
    if kind is not MessageKind.END:
        # What is complete of a document that cannot be read to its end.
        process(reader.read_buffered())
    if unsent:
        send_results([])
    summary = ReadSummary(
        type=reader.type,
        tally=reader.tally,
        wire_bytes=reader.wire_bytes,
        decoded_bytes=reader.decoded_bytes,
        is_window=reader.is_window,
        shows_its_end=reader.shows_its_end,
        hashes=reader.content_hash(),
        error=error,
    )
    send(MessageKind.SUMMARY, summary, b"")


def read_documents(receive: Callable[[int], bytes], send: Callable[[bytes], None]) -> None:
    """Read documents, which may take turns, until the first process needs no more.

    `receive` returns fewer bytes than asked for at the end only. A document that has ended at an
    error may still get messages.
    """

    def send_message(number: int, kind: MessageKind, value: object, data: bytes) -> None:
        send(message(number, kind, value, data))

    documents: dict[int, Reading] = {}
    while len(head := receive(HEAD.size)) == HEAD.size:
        number, kind, value_size, data_size = HEAD.unpack(head)
        pickled, data = receive(value_size), receive(data_size)
        if kind == MessageKind.OPEN:
            start: StartReading = pickle.loads(pickled)  # noqa: S301 from the first process
            documents[number] = start(partial(send_message, number))
            next(documents[number])
        elif kind == MessageKind.DROP:
            documents.pop(number, None)
        elif number in documents:
            try:
                documents[number].send((MessageKind(kind), data))
            except StopIteration:
                del documents[number]
