"""From the bytes of a document as received to clean text, with the hashes that recognize it.

`Body` decompresses with strict limits. It detects gzip by its magic number only, because names and
headers may be wrong. `TextDecoder` decodes even if a wrong encoding is declared: a byte order mark
takes precedence over the XML declaration, and that over the HTTP header. `ContentHash` is what a
later scan compares. Its wire part shows without decompressing that nothing changed; its content
part is the same for every compression (decision 0011).
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import webencodings
import xxhash

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
from siteatlas.scanner.reading.entries import Tally

CHUNK_BYTES = 64 * 1024
GZIP_MAGIC = b"\x1f\x8b"
MAX_LAYERS = 2
# The name under which Python's codecs find `_as_cp1252`.
LENIENT_BYTES = "siteatlas_cp1252"


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
        for chunk in chunks:
            self.decoded_bytes += len(chunk)
            self._sizes.check(self.decoded_bytes)
            yield chunk


def _check_content_encoding(content_encoding: str) -> None:
    codings = [coding.strip().lower() for coding in content_encoding.split(",")]
    if len(codings) > MAX_LAYERS:
        raise EncodingChain
    if not {"", "identity", "gzip", "x-gzip"}.issuperset(codings):
        raise EncodingUnsupported


@dataclass(slots=True)
class _SizeCheck:
    """Compares what a document and each of its gzip layers give with the limits."""

    limits: BodyLimits
    wire_bytes: int = 0

    def check(self, output_bytes: int) -> None:
        if output_bytes > self.limits.decoded_bytes:
            raise TooLarge
        is_large = output_bytes > self.limits.ratio_from_bytes
        if is_large and output_bytes > self.limits.ratio * self.wire_bytes:
            raise DecompressionBomb


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
        return self._gzip is not None

    @property
    def ignores_rest(self) -> bool:
        """Whether nothing in the rest of the document can belong to this layer: it is garbage."""
        return self._gzip is not None and self._gzip.ignores_rest

    def feed(self, data: bytes) -> Iterator[bytes]:
        if not self._sniffed:
            self._start += data
            if len(self._start) < len(GZIP_MAGIC):
                yield b""
                return
            data, self._start = self._start, b""
            self._sniff(data)
        yield from self._decompress(data)

    def close(self) -> Iterator[bytes]:
        if not self._sniffed and self._start:
            self._sniffed = True
            yield self._start
        if self._gzip is not None and self._inner is not None:
            yield from self._inner.close()
            if not self._gzip.at_end:
                raise Truncated

    def _sniff(self, data: bytes) -> None:
        self._sniffed = True
        if not data.startswith(GZIP_MAGIC):
            return
        if self._number > MAX_LAYERS:
            raise EncodingChain
        self._gzip = _GzipMembers(self._tally, self._sizes.limits.gzip_members)
        self._inner = _GzipLayer(self._number + 1, self._tally, self._sizes)

    def _decompress(self, data: bytes) -> Iterator[bytes]:
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
        self._member = _new_member()
        self._member_has_output = False
        self._between = b""
        self.ignores_rest = False
        self.error: ScanError | None = None

    @property
    def at_end(self) -> bool:
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
        self._member = _new_member()
        self._member_has_output = False
        return data

    def _note_garbage(self) -> None:
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


def _new_member() -> zlib._Decompress:
    # The largest window, and 16 for the header of gzip.
    return zlib.decompressobj(15 + 16)


class TextDecoder:
    """Decodes a document chunk by chunk. Never fails: errors are repaired and counted."""

    def __init__(self, http_charset: str | None, tally: Tally) -> None:
        self._http_charset = http_charset
        self._tally = tally
        self._head: bytes | None = b""
        self._decoder: codecs.IncrementalDecoder = _decoder("utf-8")
        # Set while UTF-8 is tried on a document that declares another encoding.
        self._instead: str | None = None
        self._utf8_seen = False

    def decode(self, data: bytes, *, final: bool = False) -> str:
        """The text of these bytes; with `final`, also of those still buffered."""
        return "".join(text for text, _ in self.decode_parts(data, final=final))

    def decode_parts(self, data: bytes, *, final: bool = False) -> Iterator[tuple[str, bool]]:
        """The text of these bytes in one part, or in several if invalid bytes are found.

        With each part, whether it is the last one.
        """
        if self._head is not None:
            self._head += data
            if len(self._head) < 256 and not final:
                yield "", True
                return
            data, self._head = self._head, None
            data = data[self._choose(data) :]
        if self._instead is not None:
            begun = self._decoder.getstate()[0]
            try:
                parts = iter([(self._decode_as_utf8(data, final), True)])
            except UnicodeDecodeError:
                self._use_declared(self._instead)
                parts = self._decode_chosen(begun + data, final)
        else:
            parts = self._decode_chosen(data, final)
        yield from parts

    def _decode_chosen(self, data: bytes, final: bool) -> Iterator[tuple[str, bool]]:
        text = ""
        is_whole = data.isascii() and not self._is_lenient
        # Each invalid byte costs a call of a Python function.
        size = len(data) or 1 if is_whole else 8 * 1024
        last = max(len(data) - 1, 0) // size * size
        for start in range(0, last, size):
            text += self._decode(data[start : start + size], final=False)
            if self._is_lenient:
                yield text, False
                text = ""
        yield text + self._decode(data[last:], final), True

    def _decode_as_utf8(self, data: bytes, final: bool) -> str:
        self._utf8_seen = self._utf8_seen or not data.isascii()
        text = self._decoder.decode(data, final)
        if final and self._utf8_seen:
            self._tally.note(ProblemCode.ENCODING_LIE)
        return text

    def _use_declared(self, codec: str) -> None:
        self._tally.note(ProblemCode.ENCODING_NOT_UTF8, value=codec)
        self._decoder = _decoder(codec)
        self._decoder.errors = LENIENT_BYTES
        self._instead = None

    @property
    def _is_lenient(self) -> bool:
        return self._decoder.errors != "strict"

    def _decode(self, data: bytes, final: bool) -> str:
        state = self._decoder.getstate()
        try:
            return self._decoder.decode(data, final)
        except UnicodeDecodeError:
            self._tally.note(ProblemCode.ENCODING_LIE)
            self._decoder.errors = self._lenient
            # A decoder that fails keeps the escape sequences that it has read until then.
            self._decoder.setstate(state)
            return self._decoder.decode(data, final)

    def _choose(self, head: bytes) -> int:
        self._lenient = LENIENT_BYTES
        for mark, name in (
            (codecs.BOM_UTF32_LE, "utf-32-le"),
            (codecs.BOM_UTF32_BE, "utf-32-be"),
            (codecs.BOM_UTF8, "utf-8"),
            (codecs.BOM_UTF16_LE, "utf-16-le"),
            (codecs.BOM_UTF16_BE, "utf-16-be"),
        ):
            if head.startswith(mark):
                self._use_codec(name)
                self._note_conflict(name, _declared_charset(head[len(mark) :]), self._http_charset)
                return len(mark)
        # Without a mark, the first `<` or `ht` shows that characters have several bytes.
        for start, name in (
            (b"<\x00\x00\x00", "utf-32-le"),
            (b"\x00\x00\x00<", "utf-32-be"),
            (b"<\x00", "utf-16-le"),
            (b"\x00<", "utf-16-be"),
            (b"h\x00t\x00", "utf-16-le"),
            (b"\x00h\x00t", "utf-16-be"),
        ):
            if head.startswith(start):
                self._use_codec(name)
                return 0
        self._use_claim(head)
        return 0

    def _use_codec(self, name: str) -> None:
        self._decoder = _decoder(name)
        self._lenient = "replace" if name.startswith(("utf-16", "utf-32")) else LENIENT_BYTES
        if name != "utf-8":
            self._tally.note(ProblemCode.ENCODING_NOT_UTF8, value=name)

    def _use_claim(self, head: bytes) -> None:
        declared = _declared_charset(head)
        claim = declared or self._http_charset
        if not claim:
            return
        self._note_conflict(declared, self._http_charset)
        # Names of the standard. All others are sets of one byte per character, or Unicode.
        east_asian = {"big5", "euc-jp", "euc-kr", "gb18030", "gbk", "iso-2022-jp", "shift_jis"}
        known = _character_set(claim)
        if known is None:
            self._tally.note(ProblemCode.ENCODING_UNKNOWN, value=claim)
        elif known.standard_name in east_asian:
            self._use_codec(known.codec)
        elif known.standard_name not in {"utf-8", "utf-16le", "utf-16be"}:
            self._instead = "cp1252" if known.codec in {"ascii", "iso8859-1"} else known.codec

    def _note_conflict(self, *claims: str | None) -> None:
        known = [_character_set(claim) for claim in claims if claim]
        families = {one.codec.removesuffix("-le").removesuffix("-be") for one in known if one}
        families.discard("ascii")
        if len(families) > 1:
            self._tally.note(ProblemCode.ENCODING_CONFLICT, value=", ".join(filter(None, claims)))


class CharacterSet(NamedTuple):
    """A character set: its name in the WHATWG standard, and the codec that reads it."""

    standard_name: str
    codec: str


_match_declaration = re.compile(
    rb"""<\?xml\s[^>]*?encoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']"""
).match


def _declared_charset(head: bytes) -> str | None:
    match = _match_declaration(head.lstrip())
    return match[1].decode() if match else None


def _decoder(name: str) -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder(name)("strict")


def _character_set(label: str) -> CharacterSet | None:
    """What a label means; None for one that no browser knows.

    The standard decides what is a character set: Python's registry also holds compressors and
    escapes. Python's own codec for the label comes first, since it is the more exact one.
    """
    python_name = _codec_name(label)
    for spelling in (label, python_name, python_name.replace("_", "-")):
        encoding = webencodings.lookup(spelling)
        # Labels that the standard knows only to keep them from being used.
        unusable = {"replacement", "x-user-defined"}
        if encoding is not None and encoding.name not in unusable:
            return CharacterSet(encoding.name, python_name or encoding.codec_info.name)
    return None


def _codec_name(label: str) -> str:
    try:
        return codecs.lookup(label).name
    except LookupError:
        return ""


_cp1252_table = "".join(
    bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(0x100)
)

_match_surrogate = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]|[\xc0\xc1][\x80-\xbf]").match
# In UTF-8 no character starts with any of these.
_match_no_starts = re.compile(rb"[\x80-\xbf\xf5-\xff]+").match


def _as_cp1252(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    disguised = _match_surrogate(error.object, error.start)
    if disguised:
        return "\ufffd", disguised.end()
    wrong = error.object[error.start : error.end]
    try:
        text = wrong.decode("cp1252")
    except UnicodeDecodeError:
        text = wrong.decode("latin-1")
    more = _match_no_starts(error.object, error.end) if error.encoding == "utf-8" else None
    if more is None:
        return text, error.end
    return text + codecs.charmap_decode(more[0], "strict", _cp1252_table)[0], more.end()


codecs.register_error(LENIENT_BYTES, _as_cp1252)


class ContentHash(NamedTuple):
    """Both hashes of one complete read; `str` of it is stored and passed in events."""

    content: str
    wire: str

    def __str__(self) -> str:
        return f"{self.content}-{self.wire}"

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """The hashes in a stored text; None if it is not one."""
        content, separator, wire = (text or "").partition("-")
        return cls(content, wire) if content and separator and wire else None


class WireHash:
    """Hashes the bytes of a response as they arrive.

    Compressing the same content again must not change the hash, so the time in the header of a gzip
    file does not count. The character set that the response names does, because the text depends
    on it.
    """

    def __init__(self, charset: str | None = None) -> None:
        self._hash = xxhash.xxh3_128((charset or "").lower().encode())
        self._start: bytes | None = b""

    def update(self, chunk: bytes) -> None:
        """Add the next bytes."""
        if self._start is None:
            self._hash.update(chunk)
            return
        self._start += chunk
        # The length of the header of a gzip file.
        if len(self._start) >= 10:
            start, self._start = self._start, None
            if start.startswith(GZIP_MAGIC):
                # Without the time at which it was compressed.
                start = start[:4] + bytes(4) + start[8:]
            self._hash.update(start)

    def hexdigest(self) -> str:
        """The hash of all bytes so far."""
        whole = self._hash.copy()
        whole.update(self._start or b"")
        return whole.hexdigest()
