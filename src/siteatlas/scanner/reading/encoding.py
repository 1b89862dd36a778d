"""Decodes the bytes of a document to clean text, even if it declares a wrong encoding.

A byte order mark takes precedence over the XML declaration, which takes precedence over the HTTP
header.
"""

from __future__ import annotations

import codecs
import re

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
# Only real character sets: the codec registry also holds compressors and escapes.
CHARACTER_SET = re.compile(
    r"utf-(?:8|16|32)(?:-[lb]e)?|ascii|iso8859-\d+|cp\d+|koi8-\w+|mac-\w+|gb\w+|big5\w*|euc_\w+|shift_\w+"
)
SINGLE_BYTE = re.compile(r"ascii|iso8859-\d+|cp125\d|koi8-\w+|mac-\w+")
LATIN = frozenset({"ascii", "iso8859-1"})
WIDE = re.compile(r"utf-(?:16|32)")
WIDE_ORDER = re.compile(r"-[lb]e$")
STRICT, LENIENT_BYTES, LENIENT_WIDE = "strict", "siteatlas_cp1252", "replace"
SURROGATE_BYTES = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]|[\xc0\xc1][\x80-\xbf]")
REPLACEMENT = "\ufffd"


def _as_cp1252(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    disguised = SURROGATE_BYTES.match(error.object, error.start)
    if disguised:
        return REPLACEMENT, disguised.end()
    wrong = error.object[error.start : error.end]
    try:
        return wrong.decode("cp1252"), error.end
    except UnicodeDecodeError:
        return wrong.decode("latin-1"), error.end


codecs.register_error(LENIENT_BYTES, _as_cp1252)


class TextDecoder:
    """Decodes a document piece by piece. Never fails: what is wrong is counted and mended."""

    def __init__(self, http_charset: str | None, tally: Tally) -> None:
        self._http_charset = http_charset
        self._tally = tally
        self._head: bytes | None = b""
        self._decoder: codecs.IncrementalDecoder = _decoder("utf-8")
        # Set while UTF-8 is tried on a document that says it is something else.
        self._instead: str | None = None
        self._utf8_seen = False

    def decode(self, data: bytes, *, final: bool = False) -> str:
        """The text of these bytes; with `final`, also what was held back."""
        if self._head is not None:
            self._head += data
            if len(self._head) < HEAD_BYTES and not final:
                return ""
            data, self._head = self._head, None
            data = data[self._choose(data) :]
        if self._instead is not None and not data.isascii():
            self._utf8_seen = True
        text = self._decode(data, final)
        if final and self._instead is not None and self._utf8_seen:
            self._tally.note(ProblemCode.ENCODING_LIE)
        return text

    def _decode(self, data: bytes, final: bool) -> str:
        pending = self._decoder.getstate()[0]
        try:
            return self._decoder.decode(data, final)
        except UnicodeDecodeError:
            if self._instead is not None:
                self._tally.note(ProblemCode.ENCODING_NOT_UTF8, value=self._instead)
                self._decoder = _decoder(self._instead)
                self._decoder.errors = LENIENT_BYTES
                self._instead = None
                return self._decoder.decode(pending + data, final)
            self._tally.note(ProblemCode.ENCODING_LIE)
            self._decoder.errors = self._lenient
            return self._decoder.decode(data, final)

    def _choose(self, head: bytes) -> int:
        """Pick the decoder; the length of the byte order mark to leave out."""
        self._lenient = LENIENT_BYTES
        for mark, name in BYTE_ORDER_MARKS:
            if head.startswith(mark):
                self._use(name)
                self._note_conflict(name, _declared(head[len(mark) :]), self._http_charset)
                return len(mark)
        for start, name in WIDE_STARTS:
            if head.startswith(start):
                self._use(name)
                return 0
        self._use_claim(head)
        return 0

    def _use(self, name: str) -> None:
        self._decoder = _decoder(name)
        self._lenient = LENIENT_WIDE if WIDE.match(name) else LENIENT_BYTES
        if name != "utf-8":
            self._tally.note(ProblemCode.ENCODING_NOT_UTF8, value=name)

    def _use_claim(self, head: bytes) -> None:
        declared = _declared(head)
        claim = declared or self._http_charset
        if not claim:
            return
        self._note_conflict(declared, self._http_charset)
        name = _character_set(claim)
        if name is None:
            self._tally.note(ProblemCode.ENCODING_UNKNOWN, value=claim)
        elif SINGLE_BYTE.fullmatch(name):
            self._instead = "cp1252" if name in LATIN else name
        elif not WIDE.match(name):
            self._use(name)

    def _note_conflict(self, *claims: str | None) -> None:
        """Count sources that name different encodings; ASCII agrees with most."""
        names = {_character_set(claim) for claim in claims if claim} - {None, "ascii"}
        families = {WIDE_ORDER.sub("", name) for name in names if name}
        if len(families) > 1:
            self._tally.note(ProblemCode.ENCODING_CONFLICT, value=", ".join(filter(None, claims)))


def _declared(head: bytes) -> str | None:
    match = DECLARATION.match(head.lstrip())
    return match[1].decode() if match else None


def _decoder(name: str) -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder(name)(STRICT)


def _character_set(claim: str) -> str | None:
    try:
        name = codecs.lookup(claim).name
    except LookupError:
        return None
    return name if CHARACTER_SET.fullmatch(name.lower()) else None
