"""Reads one document as a stream: received bytes in, columns or children out. No network.

Combines body, encoding, head and format, and keeps the counts of the document.
"""

from __future__ import annotations

from collections.abc import Iterator

import xxhash

from siteatlas.errors import (
    EncodingChain,
    GzipCorrupt,
    GzipMembers,
    ScanError,
    TooLarge,
    TooManyEntries,
    Truncated,
)
from siteatlas.scanner.events import SitemapType
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.body import Body, BodyLimits
from siteatlas.scanner.reading.encoding import TextDecoder
from siteatlas.scanner.reading.formats import Format, reader_for
from siteatlas.scanner.reading.head import read_head
from siteatlas.scanner.reading.tally import ReadResult, Tally

MAX_ENTRIES = 250_000
PROTOCOL_ENTRIES = 50_000
PROTOCOL_BYTES = 50 * 1024 * 1024
GATHERED_BYTES = 4096
BODY_ERRORS = (EncodingChain, GzipCorrupt, GzipMembers, TooLarge, Truncated)


class DocumentReader:
    """Reads one sitemap document of any kind.

    `feed` and `close` yield once per piece of at most 64 KiB, so that the caller can give way in
    between, and raise a ScanError when the document cannot be read on; what was yielded stands.
    `base_url` is the address of the document: relative pages are resolved against it, or left out
    where it is not known.
    Drops of bytes are gathered to `gather` bytes first, so that a drip costs no more than a stream.
    """

    def __init__(
        self,
        content_encoding: str | None = None,
        charset: str | None = None,
        *,
        base_url: str | None = None,
        limits: BodyLimits | None = None,
        max_entries: int = MAX_ENTRIES,
        gather: int = GATHERED_BYTES,
    ) -> None:
        self.tally = Tally()
        self.type: SitemapType | None = None
        self.entry_count = 0
        self.child_count = 0
        self._base_url = base_url
        self._max_entries = max_entries
        self._gather = gather
        self._gathered = b""
        self._body = Body(content_encoding, self.tally, limits)
        self._decoder = TextDecoder(charset, self.tally)
        self._hash = xxhash.xxh3_128()
        self._head = ""
        self._format: Format | None = None

    @property
    def wire_bytes(self) -> int:
        """Bytes taken in so far."""
        return self._body.wire_bytes

    @property
    def decoded_bytes(self) -> int:
        """Bytes of the document itself so far."""
        return self._body.decoded_bytes

    def content_hash(self) -> str:
        """A fingerprint of the document's bytes so far, the same for every compression."""
        return self._hash.hexdigest()

    def feed(self, chunk: bytes) -> Iterator[ReadResult]:
        """What these wire bytes complete."""
        try:
            for piece in self._body.feed(chunk):
                yield from self._decode_chunk(piece)
        except BODY_ERRORS:
            yield from self.salvage()
            raise

    def salvage(self) -> Iterator[ReadResult]:
        """What is complete in the held text, for a document whose bytes broke off."""
        text = self._decoder.decode(self._gathered, final=True)
        self._gathered = b""
        try:
            harvest = self._parse_text(text, final=False)
            if harvest is not None:
                yield harvest
            if self._format is not None:
                yield self._counted(self._format.release())
        except ScanError:
            return

    def close(self) -> Iterator[ReadResult]:
        """What is left at the end of the wire."""
        try:
            for piece in self._body.close():
                yield from self._decode_chunk(piece)
        except BODY_ERRORS:
            yield from self.salvage()
            raise
        yield from self._decode_chunk(b"", final=True)
        self._note_size()

    def _decode_chunk(self, piece: bytes, *, final: bool = False) -> Iterator[ReadResult]:
        self._hash.update(piece)
        piece, self._gathered = self._gathered + piece, b""
        if len(piece) < self._gather and not final:
            self._gathered = piece
            yield ReadResult()
            return
        harvest = self._parse_text(self._decoder.decode(piece, final=final), final=final)
        yield harvest or ReadResult()
        if harvest is not None and harvest.error is not None:
            raise harvest.error

    def _parse_text(self, text: str, *, final: bool) -> ReadResult | None:
        if self._format is None:
            self._head += text
            head = read_head(self._head, self.tally, final=final)
            if head is None:
                return None
            self.type, text, self._head = head.type, head.rest, ""
            self._format = reader_for(head, self.tally, self._base_url)
        return self._counted(self._format.feed(text, final=final))

    def _note_size(self) -> None:
        """Count what the protocol would not allow, though we read it."""
        if self.entry_count + self.child_count > PROTOCOL_ENTRIES:
            self.tally.note(ProblemCode.OVER_50000_ENTRIES)
        if self.decoded_bytes > PROTOCOL_BYTES:
            self.tally.note(ProblemCode.OVER_50_MIB)

    def _counted(self, harvest: ReadResult) -> ReadResult:
        room = self._max_entries - self.entry_count - self.child_count - self.tally.skipped
        found = len(harvest.columns) + len(harvest.children)
        if found > room:
            harvest.error = TooManyEntries()
            room = max(room, 0)
            harvest.children = harvest.children[:room]
            harvest.columns = harvest.columns.head(room)
        self.entry_count += len(harvest.columns)
        self.child_count += len(harvest.children)
        return harvest
