"""Reads one document as a stream: received bytes in, columns or children out. No network.

Combines body, encoding, head and format, and keeps the counts of the document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

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
from siteatlas.scanner.reading.decoding import (
    CHUNK_BYTES,
    Body,
    BodyLimits,
    ContentHash,
    TextDecoder,
    WireHash,
)
from siteatlas.scanner.reading.entries import ReadResult, Tally
from siteatlas.scanner.reading.head import WINDOWS

if TYPE_CHECKING:
    from siteatlas.scanner.reading.formats import Format
    from siteatlas.scanner.reading.head import HeadReader

BODY_ERRORS = (EncodingChain, GzipCorrupt, GzipMembers, TooLarge, Truncated)


def load_readers() -> None:
    """Import the readers of all formats now, so that the first document is not held up by it."""
    import_module("siteatlas.scanner.reading.formats")


class DocumentReader:
    """Reads one sitemap document of any kind.

    `feed` and `close` yield at least once per chunk of at most 64 KiB, more often if it takes long,
    so that the caller can yield to the event loop, and raise a ScanError when the document cannot
    be read further; results already yielded remain valid. `base_url` is the address of the
    document: relative pages are resolved against it, or skipped if it is not known. Bytes are read
    in blocks of `block_bytes`, or as they come if it is 0: how they arrive must not change what is
    read, and each block has a fixed cost.

    `on_text` is given the decoded text before it is read. `judge_left_out` also counts what else is
    wrong with entries that are left out.
    """

    def __init__(
        self,
        content_encoding: str | None = None,
        charset: str | None = None,
        *,
        base_url: str | None = None,
        limits: BodyLimits | None = None,
        max_entries: int = 250_000,
        block_bytes: int = CHUNK_BYTES,
        on_text: Callable[[str], None] | None = None,
        judge_left_out: bool = False,
    ) -> None:
        self.tally = Tally(judges_left_out=judge_left_out)
        self._on_text = on_text
        self.type: SitemapType | None = None
        self.entry_count = 0
        self.child_count = 0
        self._base_url = base_url
        self._max_entries = max_entries
        self._block_bytes = block_bytes
        self._buffered = b""
        self._body = Body(content_encoding, self.tally, limits)
        self._decoder = TextDecoder(charset, self.tally)
        self._hash = xxhash.xxh3_128()
        self._wire_hash = WireHash(charset)
        self._news_count = 0
        self._capability = ""
        self._head: HeadReader | None = None
        self._format: Format | None = None

    @property
    def wire_bytes(self) -> int:
        """Size of the document as read so far, before decompression."""
        return self._body.wire_bytes

    @property
    def decoded_bytes(self) -> int:
        """Bytes of the decompressed document so far."""
        return self._body.decoded_bytes

    @property
    def is_window(self) -> bool:
        """Whether it lists only recent entries: a feed, changes of a period, or mostly news."""
        if self.type in (SitemapType.RSS, SitemapType.ATOM):
            return True
        if self.type is not SitemapType.INDEX and self._capability in WINDOWS:
            return True
        return 2 * self._news_count >= self.entry_count > 0

    @property
    def shows_its_end(self) -> bool:
        """Whether the document itself shows that it was read to its end: by a tag, or by gzip."""
        return self.type is not SitemapType.TEXT or self._body.is_compressed

    def content_hash(self) -> ContentHash:
        """The hashes of the document so far."""
        return ContentHash(self._hash.hexdigest(), self._wire_hash.hexdigest())

    def feed(self, chunk: bytes) -> Iterator[ReadResult]:
        """The results completed by this chunk."""
        self._wire_hash.update(chunk)
        try:
            for decoded in self._body.feed(chunk):
                yield from self._decode_chunk(decoded)
        except BODY_ERRORS:
            yield from self.read_buffered()
            raise

    def read_buffered(self) -> Iterator[ReadResult]:
        """Yield the complete entries still buffered, if the body of the document is incomplete."""
        text = self._decoder.decode(self._buffered, final=True)
        self._buffered = b""
        try:
            yield from self._feed_format(text, final=False)
            if self._format is not None:
                yield self._apply_entry_limit(self._format.flush())
        except ScanError:
            return

    def close(self) -> Iterator[ReadResult]:
        """The remaining results at the end of the body."""
        try:
            for decoded in self._body.close():
                yield from self._decode_chunk(decoded)
        except BODY_ERRORS:
            yield from self.read_buffered()
            raise
        yield from self._decode_chunk(b"", final=True)
        self._note_size()

    def _decode_chunk(self, chunk: bytes, *, final: bool = False) -> Iterator[ReadResult]:
        self._hash.update(chunk)
        chunk, self._buffered = self._buffered + chunk, b""
        size = self._block_bytes or len(chunk) or 1
        cut = len(chunk) if final else len(chunk) // size * size
        chunk, self._buffered = chunk[:cut], chunk[cut:]
        for start in range(0, cut, size):
            yield from self._decode_block(chunk[start : start + size])
        if final:
            yield from self._decode_block(b"", final=True)
        elif not cut:
            yield ReadResult()

    def _decode_block(self, block: bytes, *, final: bool = False) -> Iterator[ReadResult]:
        for text, is_last in self._decoder.decode_parts(block, final=final):
            if self._on_text is not None:
                self._on_text(text)
            yield from self._feed_format(text, final=final and is_last)

    def _feed_format(self, text: str, *, final: bool) -> Iterator[ReadResult]:
        if self._format is None:
            # Late, so that a scan sends its first request before it imports the XML parser.
            from siteatlas.scanner.reading.formats import reader_for
            from siteatlas.scanner.reading.head import HeadReader

            self._head = self._head or HeadReader(self.tally)
            head = self._head.feed(text, final=final)
            if head is None:
                yield ReadResult()
                return
            self.type, text, self._head = head.type, head.rest, None
            self._capability = head.capability
            self._format = reader_for(head, self.tally, self._base_url)
        for result in self._format.feed(text, final=final):
            yield self._apply_entry_limit(result)
            if result.error is not None:
                raise result.error

    def _note_size(self) -> None:
        if self.entry_count + self.child_count > 50_000:
            self.tally.note(ProblemCode.OVER_50000_ENTRIES)
        if self.decoded_bytes > 50 * 1024 * 1024:
            self.tally.note(ProblemCode.OVER_50_MIB)

    def _apply_entry_limit(self, result: ReadResult) -> ReadResult:
        remaining = self._max_entries - self.entry_count - self.child_count - self.tally.skipped
        found = len(result.columns) + len(result.children)
        if found > remaining:
            result.error = TooManyEntries()
            remaining = max(remaining, 0)
            result.children = result.children[:remaining]
            result.columns = result.columns.head(remaining)
        self.entry_count += len(result.columns)
        self.child_count += len(result.children)
        if any(result.columns.extras):
            self._news_count += sum("news" in extra for extra in result.columns.extras if extra)
        return result


class DuplicateUrls:
    """The URLs of one document as 64-bit hashes; records repeated ones in its tally."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._seen: set[int] = set()

    def note_repeated(self, urls: Sequence[str]) -> None:
        """Record in the tally of the document which of its next URLs it has listed before."""
        seen, new = self._seen, set(map(hash, urls))
        if len(new) == len(urls) and seen.isdisjoint(new):
            seen |= new
            return
        for url in urls:
            key = hash(url)
            if key in seen:
                self._tally.note(ProblemCode.DUPLICATE_URL, url=url)
            seen.add(key)
