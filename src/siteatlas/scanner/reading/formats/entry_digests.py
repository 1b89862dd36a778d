"""Recognizes entries by a digest of their text, so that known ones need not be read again.

An entry has a digest only if there was no problem in its chunk. The root tag and the address of the
document are part of every digest, because the meaning of an entry depends on them too. What is
stored for a digest therefore holds for every later read of the document (decision 0011).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, repeat

from xxhash import xxh3_64_intdigest

from siteatlas.scanner.events import RecognizedEntries
from siteatlas.scanner.options import KnownEntries
from siteatlas.scanner.reading.entries import WHITE_SPACE, Extras
from siteatlas.scanner.reading.formats.salvage import decode_url

ENTRY_END = b"</url>"
NO_DIGEST = 0


@dataclass(slots=True)
class ExaminedChunk:
    """The digests of the entries of a chunk; the entries at `places` of it are not recognized.

    `recognized` is None if no entry is known, if their URLs cannot be told, or if one is repeated.
    """

    digests: list[int]
    recognized: RecognizedEntries | None = None
    places: Sequence[int] = ()
    unknown_text: str = ""

    @property
    def unknown_digests(self) -> list[int]:
        """The digests of the entries that are not recognized."""
        return [self.digests[place] for place in self.places]


class EntryDigests:
    """The digests of the entries of one document, of which some may be known.

    `context` is what their meaning depends on besides their text.
    """

    def __init__(self, context: str, known: KnownEntries | None = None) -> None:
        self._seed = xxh3_64_intdigest(context.encode())
        self._known = known

    def examine(self, chunk: str) -> ExaminedChunk:
        """The digests of the entries of a chunk, and which are known; it must end with an entry."""
        texts = chunk.encode().split(ENTRY_END)
        texts.pop()
        unsigned = array("Q", map(xxh3_64_intdigest, texts, repeat(self._seed)))
        digests = array("q", unsigned.tobytes()).tolist()
        if self._known is None:
            return ExaminedChunk(digests)
        found = self._known.find(digests)
        urls = [] if found.count(None) == len(found) else _locs(chunk)
        # Of several listings of a URL, the order matters.
        if len(urls) != len(found) or len(set(urls)) < len(urls):
            return ExaminedChunk(digests)
        known = [position is not None for position in found]
        positions = [position for position in found if position is not None]
        places = [place for place, position in enumerate(found) if position is None]
        recognized = RecognizedEntries(positions, list(compress(urls, known)))
        return ExaminedChunk(digests, recognized, places, _joined([texts[n] for n in places]))


def storable_digests(digests: Sequence[int], extras: Sequence[Extras | None]) -> list[int]:
    """The digests to store; NO_DIGEST for entries with news, which every read must count."""
    if not extras:
        return list(digests)
    pairs = zip(digests, extras, strict=True)
    return [NO_DIGEST if extra and "news" in extra else digest for digest, extra in pairs]


def _joined(texts: list[bytes]) -> str:
    return b"".join([part for text in texts for part in (text, ENTRY_END)]).decode()


def _locs(text: str) -> list[str]:
    """The URLs of the entries of a chunk. A pattern would take as long as reading the entries."""
    urls = [part[: part.find("<")] for part in text.split("<loc>")[1:]]
    if "&" in text:
        urls = [decode_url(url) for url in urls]
    # One look at all of them: few documents have blanks around their URLs.
    if "".join(urls).split() == ["".join(urls)]:
        return urls
    return [url.strip(WHITE_SPACE) for url in urls]
