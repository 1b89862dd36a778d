"""The hashes by which a later scan recognizes a document: of its bytes as received, and of its
content.

The first shows without decompressing that nothing changed; the second is the same for every
compression, and shows whether the content differs. Decision 0031 has the reasons.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import xxhash

GZIP_HEADER_BYTES = 10
GZIP_MAGIC = b"\x1f\x8b"
# Where the header of a gzip file has the time at which it was compressed.
GZIP_TIME = slice(4, 8)
NO_TIME = bytes(4)
SEPARATOR = "-"


class ContentHash(NamedTuple):
    """Both hashes of one complete read; `str` of it is stored and passed in events."""

    content: str
    wire: str

    def __str__(self) -> str:
        return f"{self.content}{SEPARATOR}{self.wire}"

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """The hashes in a stored text; None if it is not one."""
        content, separator, wire = (text or "").partition(SEPARATOR)
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
        if len(self._start) >= GZIP_HEADER_BYTES:
            self._hash.update(_without_gzip_time(self._start))
            self._start = None

    def hexdigest(self) -> str:
        """The hash of all bytes so far."""
        whole = self._hash.copy()
        whole.update(self._start or b"")
        return whole.hexdigest()


def _without_gzip_time(start: bytes) -> bytes:
    """The start of a document, without the time if it is gzip."""
    if not start.startswith(GZIP_MAGIC):
        return start
    return start[: GZIP_TIME.start] + NO_TIME + start[GZIP_TIME.stop :]
