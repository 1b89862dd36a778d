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
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
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
        self._documents: dict[int, RemoteDocument] = {}
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

    @asynccontextmanager
    async def document(self, task: DocumentTask) -> AsyncIterator[RemoteDocument]:
        """A document for the process to read while the block runs."""
        self._number += 1
        number = self._number
        document = self._documents[number] = RemoteDocument(task, partial(self._send, number))
        try:
            yield document
        finally:
            del self._documents[number]
            document.drop()
            self._write(number, MessageKind.DROP)

    async def end(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        self._receiving.cancel()
        self._outgoing.close()
        with suppress(OSError):
            await self._outgoing.wait_closed()

    async def _send(self, number: int, kind: MessageKind, value: object, data: bytes) -> None:
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
        for document in [*self._documents.values()]:
            await document.receive(None)

    async def _receive_message(self) -> None:
        head = HEAD.unpack(await self._incoming.readexactly(HEAD.size))
        number, _, value_size, data_size = head
        value = pickle.loads(await self._incoming.readexactly(value_size))  # noqa: S301 our own
        data = await self._incoming.readexactly(data_size)
        document = self._documents.get(number)
        if document is not None:
            await document.receive((value, data))


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


class RemoteDocument:
    """One document in a reader process. `summary` has its state, see there."""

    def __init__(
        self, task: DocumentTask, send: Callable[[MessageKind, object, bytes], Awaitable[None]]
    ) -> None:
        self.summary = ReadSummary()
        self._task = task
        self._send = send
        # Of up to 256 KiB each; a slow consumer of the scan stops the process with a few of them.
        self._received: asyncio.Queue[ReceivedMessage | None] = asyncio.Queue(2)
        self._is_dropped = False

    async def receive(self, message: ReceivedMessage | None) -> None:
        """Take a message of the process, or None if it has ended; waits for the consumer."""
        if not self._is_dropped:
            await self._received.put(message)

    async def results(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[ReadResult, None]:
        """Have the bytes of a body read; the last result, an empty one, comes with the summary.

        Raises the fault of the transfer or of the document after that, or ReaderLost.
        """
        sending = asyncio.create_task(self._send_body(chunks))
        try:
            while True:
                value, data = await self._next()
                if isinstance(value, ReadSummary):
                    break
                self.summary.type, children, encoded = value
                yield ReadResult(children=children, encoded=encoded and encoded._replace(data=data))
            self.summary = value
            yield ReadResult()
            if self.summary.error is not None:
                raise self.summary.error
            fault = await sending
            if fault is not None:
                raise fault
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    def drop(self) -> None:
        """Take no more messages, so that none of them holds up those of other documents."""
        self._is_dropped = True
        while not self._received.empty():
            self._received.get_nowait()

    async def _next(self) -> ReceivedMessage:
        message = await self._received.get()
        if message is None:
            raise ReaderLost
        return message

    async def _send_body(self, chunks: AsyncIterator[bytes]) -> ScanError | None:
        await self._send(MessageKind.OPEN, self._task, b"")
        try:
            async for chunk in chunks:
                await self._send(MessageKind.DATA, None, chunk)
        except ScanError as fault:
            await self._send(MessageKind.FAULT, None, b"")
            return fault
        await self._send(MessageKind.END, None, b"")
        return None


class DocumentTask(NamedTuple):
    """What a reader process must know of a document; it may be of any site of the command."""

    address: WebAddress
    content_encoding: str | None
    charset: str | None
    site_host: str
    anywhere: bool
    find_duplicates: bool
    encode: EncodeEntries


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


def message(document: int, kind: MessageKind, value: object = None, data: bytes = b"") -> bytes:
    """A message as bytes."""
    pickled = b"" if value is None else pickle.dumps(value)
    return HEAD.pack(document, kind, len(pickled), len(data)) + pickled + data


class DocumentWork:
    """One document in a reader process: read, judged and counted as `body.py` does it."""

    def __init__(self, number: int, task: DocumentTask, send: Callable[[bytes], None]) -> None:
        self._number = number
        self._task = task
        self._send = send
        self._reader = DocumentReader(
            task.content_encoding, task.charset, base_url=task.address.url
        )
        tally = self._reader.tally
        self._placement = Placement(
            task.address, SiteHosts(task.site_host), tally, anywhere=task.anywhere
        )
        self._duplicates = DuplicateUrls(tally) if task.find_duplicates else None
        self._unsent: list[EncodedEntries] = []
        self._unsent_bytes = 0
        self._type_is_sent = False

    def handle(self, kind: MessageKind, data: bytes) -> bool:
        """Process a message; returns whether the document has ended."""
        error = None
        try:
            if kind is MessageKind.DATA:
                self._process(self._reader.feed(data))
                return False
            if kind is MessageKind.END:
                self._process(self._reader.close())
        except ScanError as fault:
            error = fault
        if kind is MessageKind.DROP:
            return True
        if kind is not MessageKind.END:
            # What is complete of a document that cannot be read to its end.
            self._process(self._reader.read_buffered())
        self._send_summary(error)
        return True

    def _process(self, results: Iterable[ReadResult]) -> None:
        for result in results:
            if result.columns.urls:
                self._encode(result)
            is_opened = self._reader.type is not None and not self._type_is_sent
            # Each message costs the first process about as much as encoding a few entries.
            if is_opened or result.children or self._unsent_bytes >= 256 * 1024:
                self._send_results(result.children)

    def _encode(self, result: ReadResult) -> None:
        urls = result.columns.urls
        self._placement.note(urls)
        if self._duplicates is not None:
            self._duplicates.note_repeated(urls)
        encoded = self._task.encode(EntriesRead(self._task.address.url, result.columns))
        self._unsent.append(encoded)
        self._unsent_bytes += len(encoded.data)

    def _send_results(self, children: list[ChildLink]) -> None:
        counts = [sum(column) for column in list(zip(*self._unsent, strict=True))[1:]]
        found = self._reader.type, children, EncodedEntries(b"", *counts) if counts else None
        # As raw bytes, because a pickle would copy them once more on each side.
        data = b"".join([entries.data for entries in self._unsent])
        self._send(message(self._number, MessageKind.RESULT, found, data))
        self._unsent, self._unsent_bytes = [], 0
        self._type_is_sent = self._reader.type is not None

    def _send_summary(self, error: ScanError | None) -> None:
        if self._unsent:
            self._send_results([])
        reader = self._reader
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
        self._send(message(self._number, MessageKind.SUMMARY, summary))


def read_documents(receive: Callable[[int], bytes], send: Callable[[bytes], None]) -> None:
    """Read documents, which may take turns, until the first process needs no more.

    `receive` returns fewer bytes than asked for at the end only. A document that has ended at an
    error may still get messages.
    """
    documents: dict[int, DocumentWork] = {}
    while len(head := receive(HEAD.size)) == HEAD.size:
        number, kind, value_size, data_size = HEAD.unpack(head)
        pickled, data = receive(value_size), receive(data_size)
        if kind == MessageKind.OPEN:
            task = pickle.loads(pickled)  # noqa: S301 from the first process
            documents[number] = DocumentWork(number, task, send)
        elif number in documents and documents[number].handle(MessageKind(kind), data):
            del documents[number]
