"""Decodes the bytes of a document to clean text, even if it declares a wrong encoding.

A byte order mark takes precedence over the XML declaration, which takes precedence over the HTTP
header.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple

import webencodings

from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.tally import Tally

HEAD_BYTES = 256
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
WIDE_STARTS = (
    (b"<\x00\x00\x00", "utf-32-le"),
    (b"\x00\x00\x00<", "utf-32-be"),
    (b"<\x00", "utf-16-le"),
    (b"\x00<", "utf-16-be"),
    (b"h\x00t\x00", "utf-16-le"),
    (b"\x00h\x00t", "utf-16-be"),
)
DECLARATION = re.compile(rb"""<\?xml\s[^>]*?encoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']""")
# Names of the standard. All others are sets of one byte per character, or Unicode.
MULTI_BYTE = frozenset({"big5", "euc-jp", "euc-kr", "gb18030", "gbk", "iso-2022-jp", "shift_jis"})
# Labels that the standard knows only to keep them from being used.
UNUSABLE = frozenset({"replacement", "x-user-defined"})
LATIN = frozenset({"ascii", "iso8859-1"})
UNICODE = frozenset({"utf-8", "utf-16le", "utf-16be"})
WIDE = re.compile(r"utf-(?:16|32)")
WIDE_ORDER = re.compile(r"-[lb]e$")
STRICT, LENIENT_BYTES, LENIENT_WIDE = "strict", "siteatlas_cp1252", "replace"
SURROGATE_BYTES = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]|[\xc0\xc1][\x80-\xbf]")
# In UTF-8 no character starts with any of these.
NO_STARTS = re.compile(rb"[\x80-\xbf\xf5-\xff]+")
AS_CP1252 = "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(0x100))
REPLACEMENT = "\ufffd"
# Each invalid byte costs a call of a Python function.
LENIENT_PART_BYTES = 8 * 1024


def _as_cp1252(error: UnicodeError) -> tuple[str, int]:
    """Codec error handler: decode invalid bytes of a document as Windows-1252."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    disguised = SURROGATE_BYTES.match(error.object, error.start)
    if disguised:
        return REPLACEMENT, disguised.end()
    wrong = error.object[error.start : error.end]
    try:
        text = wrong.decode("cp1252")
    except UnicodeDecodeError:
        text = wrong.decode("latin-1")
    more = NO_STARTS.match(error.object, error.end) if error.encoding == "utf-8" else None
    if more is None:
        return text, error.end
    return text + codecs.charmap_decode(more[0], STRICT, AS_CP1252)[0], more.end()


codecs.register_error(LENIENT_BYTES, _as_cp1252)


class CharacterSet(NamedTuple):
    """A character set: its name in the WHATWG standard, and the codec that reads it."""

    standard_name: str
    codec: str


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
            if len(self._head) < HEAD_BYTES and not final:
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
        """The parts of the text of bytes whose encoding is certain."""
        text = ""
        is_whole = data.isascii() and not self._is_lenient
        size = len(data) or 1 if is_whole else LENIENT_PART_BYTES
        last = max(len(data) - 1, 0) // size * size
        for start in range(0, last, size):
            text += self._decode(data[start : start + size], final=False)
            if self._is_lenient:
                yield text, False
                text = ""
        yield text + self._decode(data[last:], final), True

    def _decode_as_utf8(self, data: bytes, final: bool) -> str:
        """Decode bytes of a document that declares another encoding but may be UTF-8."""
        self._utf8_seen = self._utf8_seen or not data.isascii()
        text = self._decoder.decode(data, final)
        if final and self._utf8_seen:
            self._tally.note(ProblemCode.ENCODING_LIE)
        return text

    def _use_declared(self, codec: str) -> None:
        """Decode the rest of the document as it declares, since it is not UTF-8."""
        self._tally.note(ProblemCode.ENCODING_NOT_UTF8, value=codec)
        self._decoder = _decoder(codec)
        self._decoder.errors = LENIENT_BYTES
        self._instead = None

    @property
    def _is_lenient(self) -> bool:
        """Whether invalid bytes were found."""
        return self._decoder.errors != STRICT

    def _decode(self, data: bytes, final: bool) -> str:
        """Decode bytes of a document; at the first invalid ones, switch to a lenient decoder."""
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
        """Choose the decoder; return the length of the byte order mark to skip."""
        self._lenient = LENIENT_BYTES
        for mark, name in BYTE_ORDER_MARKS:
            if head.startswith(mark):
                self._use_codec(name)
                self._note_conflict(name, _declared_charset(head[len(mark) :]), self._http_charset)
                return len(mark)
        for start, name in WIDE_STARTS:
            if head.startswith(start):
                self._use_codec(name)
                return 0
        self._use_claim(head)
        return 0

    def _use_codec(self, name: str) -> None:
        """Decode the document with this codec from its first byte."""
        self._decoder = _decoder(name)
        self._lenient = LENIENT_WIDE if WIDE.match(name) else LENIENT_BYTES
        if name != "utf-8":
            self._tally.note(ProblemCode.ENCODING_NOT_UTF8, value=name)

    def _use_claim(self, head: bytes) -> None:
        """Choose the codec by the XML declaration, else by the HTTP header."""
        declared = _declared_charset(head)
        claim = declared or self._http_charset
        if not claim:
            return
        self._note_conflict(declared, self._http_charset)
        known = _character_set(claim)
        if known is None:
            self._tally.note(ProblemCode.ENCODING_UNKNOWN, value=claim)
        elif known.standard_name in MULTI_BYTE:
            self._use_codec(known.codec)
        elif known.standard_name not in UNICODE:
            self._instead = "cp1252" if known.codec in LATIN else known.codec

    def _note_conflict(self, *claims: str | None) -> None:
        """Count sources that name different encodings; ASCII agrees with most."""
        known = [_character_set(claim) for claim in claims if claim]
        families = {WIDE_ORDER.sub("", one.codec) for one in known if one} - {"ascii"}
        if len(families) > 1:
            self._tally.note(ProblemCode.ENCODING_CONFLICT, value=", ".join(filter(None, claims)))


def _declared_charset(head: bytes) -> str | None:
    match = DECLARATION.match(head.lstrip())
    return match[1].decode() if match else None


def _decoder(name: str) -> codecs.IncrementalDecoder:
    """A decoder for the text of a document that raises on invalid bytes."""
    return codecs.getincrementaldecoder(name)(STRICT)


def _character_set(label: str) -> CharacterSet | None:
    """What a label means; None for one that no browser knows.

    The standard decides what is a character set: Python's registry also holds compressors and
    escapes. Python's own codec for the label comes first, since it is the more exact one.
    """
    python_name = _codec_name(label)
    for spelling in (label, python_name, python_name.replace("_", "-")):
        encoding = webencodings.lookup(spelling)
        if encoding is not None and encoding.name not in UNUSABLE:
            return CharacterSet(encoding.name, python_name or encoding.codec_info.name)
    return None


def _codec_name(label: str) -> str:
    """The name of Python's codec for a label; empty when it has none."""
    try:
        return codecs.lookup(label).name
    except LookupError:
        return ""
