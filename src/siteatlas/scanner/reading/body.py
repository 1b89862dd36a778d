"""Decompresses a document: gzip layers, with strict limits.

Detects gzip by its magic number only, because names and headers may be wrong. `encoding.py` decodes
the text.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from siteatlas.errors import (
    DecompressionBomb,
    EncodingChain,
    EncodingUnsupported,
    GzipCorrupt,
    GzipMembers,
    ScanError,
    TooLarge,
    Truncated,
)
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.tally import Tally

CHUNK_BYTES = 64 * 1024
GZIP_MAGIC = b"\x1f\x8b"
GZIP_WINDOW = 31
MAX_LAYERS = 2
READABLE_CODINGS = frozenset({"", "identity", "gzip", "x-gzip"})


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """How much one document may hold."""

    decoded_bytes: int = 100 * 1024 * 1024
    gzip_members: int = 1024
    ratio: int = 300
    ratio_from_bytes: int = 8 * 1024 * 1024


class Body:
    """Wire bytes in, document bytes out, in chunks of at most 64 KiB.

    A chunk is empty if a step of decompressing gave nothing yet: each step ends with a chunk, so
    that the caller can yield to the event loop.
    """

    def __init__(
        self, content_encoding: str | None, tally: Tally, limits: BodyLimits | None = None
    ) -> None:
        _check_content_encoding(content_encoding or "")
        self._sizes = _SizeCheck(limits or BodyLimits())
        self._layer = _GzipLayer(1, tally, self._sizes)
        self.decoded_bytes = 0

    @property
    def wire_bytes(self) -> int:
        """Bytes of the document so far, as received."""
        return self._sizes.wire_bytes

    @property
    def is_compressed(self) -> bool:
        """Whether the document is gzip, which marks its end."""
        return self._layer.is_gzip

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The chunks completed by these wire bytes; raises when a limit is exceeded."""
        for start in range(0, len(chunk), CHUNK_BYTES):
            part = chunk[start : start + CHUNK_BYTES]
            self._sizes.wire_bytes += len(part)
            yield from self._apply_limits(self._layer.feed(part))

    def close(self) -> Iterator[bytes]:
        """The bytes still buffered; raises Truncated if a gzip member is incomplete."""
        yield from self._apply_limits(self._layer.close())

    def _apply_limits(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Pass on the decompressed chunks; raise if they exceed the limits of a document."""
        for chunk in chunks:
            self.decoded_bytes += len(chunk)
            self._sizes.check(self.decoded_bytes)
            yield chunk


@dataclass(slots=True)
class _SizeCheck:
    """Compares what a document and each of its gzip layers give with the limits."""

    limits: BodyLimits
    wire_bytes: int = 0

    def check(self, output_bytes: int) -> None:
        """Raise if so many bytes are too many for a document, or for the bytes received of it."""
        if output_bytes > self.limits.decoded_bytes:
            raise TooLarge
        is_large = output_bytes > self.limits.ratio_from_bytes
        if is_large and output_bytes > self.limits.ratio * self.wire_bytes:
            raise DecompressionBomb


def _check_content_encoding(content_encoding: str) -> None:
    """Raise for a document in a compression that `Body` cannot decompress."""
    codings = [coding.strip().lower() for coding in content_encoding.split(",")]
    if len(codings) > MAX_LAYERS:
        raise EncodingChain
    unreadable = [coding for coding in codings if coding not in READABLE_CODINGS]
    if unreadable:
        raise EncodingUnsupported


class _GzipLayer:
    """One possible gzip layer; passes bytes through when they are not gzip."""

    def __init__(self, number: int, tally: Tally, sizes: _SizeCheck) -> None:
        self._number = number
        self._tally = tally
        self._sizes = sizes
        self._output_bytes = 0
        self._start = b""
        self._sniffed = False
        self._gzip: _GzipMembers | None = None
        self._inner: _GzipLayer | None = None

    @property
    def is_gzip(self) -> bool:
        """Whether the first bytes of the document have shown this layer to be gzip."""
        return self._gzip is not None

    @property
    def ignores_rest(self) -> bool:
        """Whether nothing in the rest of the document can belong to this layer: it is garbage."""
        return self._gzip is not None and self._gzip.ignores_rest

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The decompressed bytes of the document in this data."""
        if not self._sniffed:
            self._start += data
            if len(self._start) < len(GZIP_MAGIC):
                yield b""
                return
            data, self._start = self._start, b""
            self._sniff(data)
        yield from self._decompress(data)

    def close(self) -> Iterator[bytes]:
        """Yield the last bytes of the document; Truncated if a gzip member is incomplete."""
        if not self._sniffed and self._start:
            self._sniffed = True
            yield self._start
        if self._gzip is not None and self._inner is not None:
            yield from self._inner.close()
            if not self._gzip.at_end:
                raise Truncated

    def _sniff(self, data: bytes) -> None:
        """Detect by the first bytes of a document whether this layer is gzip."""
        self._sniffed = True
        if not data.startswith(GZIP_MAGIC):
            return
        if self._number > MAX_LAYERS:
            raise EncodingChain
        self._gzip = _GzipMembers(self._tally, self._sizes.limits.gzip_members)
        self._inner = _GzipLayer(self._number + 1, self._tally, self._sizes)

    def _decompress(self, data: bytes) -> Iterator[bytes]:
        """The bytes of the document, decompressed if this layer is gzip."""
        if self._gzip is None or self._inner is None:
            yield data
            return
        for chunk in self._gzip.inflate(data):
            self._output_bytes += len(chunk)
            self._sizes.check(self._output_bytes)
            yield from self._inner.feed(chunk) if chunk else (chunk,)
            self._gzip.ignores_rest |= self._inner.ignores_rest
        if self._gzip.error is not None:
            raise self._gzip.error


class _GzipMembers:
    """The members of one gzip stream; garbage behind the last one is counted and ignored."""

    def __init__(self, tally: Tally, max_members: int) -> None:
        self._tally = tally
        self._max_members = max_members
        self._members = 1
        self._member = zlib.decompressobj(GZIP_WINDOW)
        self._member_has_output = False
        self._between = b""
        self.ignores_rest = False
        self.error: ScanError | None = None

    @property
    def at_end(self) -> bool:
        """Whether the gzip stream may end here: no member is incomplete."""
        return self._member.eof or self.ignores_rest

    def inflate(self, data: bytes) -> Iterator[bytes]:
        """Chunks of at most 64 KiB, some of them empty; then `error` is set if it is damaged."""
        while data and not self.ignores_rest and self.error is None:
            if self._member.eof:
                data = self._next_member(data)
                continue
            backup = self._member.copy()
            try:
                chunk = self._member.decompress(data, CHUNK_BYTES)
            except zlib.error:
                chunk = self._salvage(backup, data)
            else:
                data = self._member.unconsumed_tail or self._member.unused_data
            self._member_has_output = self._member_has_output or bool(chunk)
            yield chunk

    def _next_member(self, data: bytes) -> bytes:
        """Begin the next gzip member if there is one; the data to decompress."""
        data = self._between + data
        self._between = b""
        if len(data) < len(GZIP_MAGIC):
            self._between = data
            return b""
        if not data.startswith(GZIP_MAGIC):
            self._note_garbage()
            return b""
        self._members += 1
        if self._members > self._max_members:
            self.error = GzipMembers()
            return b""
        self._member = zlib.decompressobj(GZIP_WINDOW)
        self._member_has_output = False
        return data

    def _note_garbage(self) -> None:
        """Record data after the last gzip member, which is ignored."""
        self.ignores_rest = True
        self._tally.note(ProblemCode.GZIP_TRAILING_GARBAGE)

    def _salvage(self, backup: zlib._Decompress, data: bytes) -> bytes:
        """The bytes before the damage, which zlib discards when it raises the error."""
        saved = bytearray()
        try:
            for position in range(len(data)):
                saved += backup.decompress(data[position : position + 1], CHUNK_BYTES)
        except zlib.error:
            pass
        if self._members > 1 and not saved and not self._member_has_output:
            self._note_garbage()
        else:
            self.error = GzipCorrupt()
        return bytes(saved)
