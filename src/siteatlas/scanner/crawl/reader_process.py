"""A reader process: reads documents for a scan and encodes their entries, with no network.

`readers.py` starts it as `python -m`, with the number of a socket. It ends when that is closed.
Documents may take turns; each is read, judged and counted as `visit.py` does it.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress

from siteatlas.errors import ScanError
from siteatlas.scanner.crawl.document import Placement, SiteHosts
from siteatlas.scanner.crawl.readers import (
    HEAD,
    DocumentTask,
    MessageKind,
    ReadSummary,
    RemoteResult,
    message,
    read_head,
    read_value,
)
from siteatlas.scanner.events import ChildLink, EncodedEntries, EntriesRead
from siteatlas.scanner.reading.document import DocumentReader, DuplicateUrls, load_readers
from siteatlas.scanner.reading.entries import ReadResult

# Returns fewer bytes than asked for at the end only.
Receive = Callable[[int], bytes]
Send = Callable[[bytes], None]


class DocumentWork:
    """One document in a reader process."""

    def __init__(self, number: int, task: DocumentTask, send: Send) -> None:
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

    def feed(self, data: bytes) -> bool:
        """Read received bytes; returns whether the document has ended, at an error."""
        try:
            self._process(self._reader.feed(data))
        except ScanError as error:
            self.fault(error)
            return True
        return False

    def end(self) -> None:
        """Read the end of the document and send its summary."""
        try:
            self._process(self._reader.close())
        except ScanError as error:
            self._send_summary(error)
        else:
            self._send_summary(None)

    def fault(self, error: ScanError | None = None) -> None:
        """Read what is complete of a document that cannot be read to its end."""
        self._process(self._reader.read_buffered())
        self._send_summary(error)

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
        result = RemoteResult(self._reader.type, children, _counts(self._unsent))
        # As raw bytes, because a pickle would copy them once more on each side.
        data = b"".join([entries.data for entries in self._unsent])
        self._send(message(self._number, MessageKind.RESULT, result, data))
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


def _counts(parts: list[EncodedEntries]) -> EncodedEntries | None:
    if not parts:
        return None
    return EncodedEntries(
        data=b"",
        found=sum(part.found for part in parts),
        kept=sum(part.kept for part in parts),
        dated=sum(part.dated for part in parts),
        undated=sum(part.undated for part in parts),
    )


class ReaderLoop:
    """Receives messages about documents until the socket is closed."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._documents: dict[int, DocumentWork] = {}

    def run(self) -> None:
        """Read documents; returns when the first process has ended or needs no more."""
        while len(head := self._receive(HEAD.size)) == HEAD.size:
            number, kind, value_size, data_size = read_head(head)
            value = read_value(self._receive(value_size))
            self._handle(number, MessageKind(kind), value, self._receive(data_size))

    def _handle(self, number: int, kind: MessageKind, value: DocumentTask, data: bytes) -> None:
        """Process one message. A document that has ended at an error may still get some."""
        if kind is MessageKind.OPEN:
            self._documents[number] = DocumentWork(number, value, self._send)
            return
        document = self._documents.get(number)
        if document is None:
            return
        if kind is MessageKind.DATA:
            if not document.feed(data):
                return
        elif kind is MessageKind.END:
            document.end()
        elif kind is MessageKind.FAULT:
            document.fault()
        del self._documents[number]


def main() -> None:
    """Run the reader process of `siteatlas scan`."""
    load_readers()
    gc.freeze()
    gc.enable()
    with socket.socket(fileno=int(sys.argv[1])) as connection, suppress(OSError):
        incoming = connection.makefile("rb", 128 * 1024)
        ReaderLoop(incoming.read, connection.sendall).run()
    # Without the tidying up of the interpreter, which nobody waits for.
    os._exit(0)


if __name__ == "__main__":
    gc.disable()
    main()
