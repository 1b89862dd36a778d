"""What of a listed entry is compared with the stored one: its fingerprint and its date.

`READ_VERSION` must be raised when the same document would yield other fingerprints or other
entries: the next read of each document is then silent instead of reporting every URL as changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from xxhash import xxh3_64_intdigest

from siteatlas.storage.hashes import SIGN_BIT, TWO_TO_64, signed64

READ_VERSION = 1
CACHED_KINDS = 4_096
NO_TEXT = 0

Kind = tuple[str | None, float | None]


class PlainFingerprints(dict[Kind, int]):
    """Fingerprints of entries without extras. Few combinations occur, so each is hashed once."""

    def __missing__(self, kind: Kind) -> int:
        value = signed64(xxh3_64_intdigest(_plain_text(kind).encode()))
        if len(self) < CACHED_KINDS:
            self[kind] = value
        return value


class Fingerprints:
    """A stable 64-bit hash of all values that are listed for a URL, except its date."""

    def __init__(self) -> None:
        self._plain = PlainFingerprints()

    def fingerprint_entries(
        self,
        changefreqs: Sequence[str | None],
        priorities: Sequence[float | None],
        extras: Sequence[str | None],
    ) -> list[int]:
        """One fingerprint per scanned entry; `extras` are JSON texts.

        Loops without helper functions, because they run for every listed URL.
        """
        plain = self._plain
        kinds = zip(changefreqs, priorities, strict=True)
        if extras.count(None) == len(extras):
            if _are_equal(changefreqs) and _are_equal(priorities):
                return [plain[kind] for kind in islice(kinds, 1)] * len(extras)
            return [plain[kind] for kind in kinds]
        digest = xxh3_64_intdigest
        texts = [
            None if extra is None else f"{_plain_text(kind)}{extra}"
            for kind, extra in zip(zip(changefreqs, priorities, strict=True), extras, strict=True)
        ]
        return [
            plain[kind]
            if text is None
            else (h - TWO_TO_64 if (h := digest(text.encode())) >= SIGN_BIT else h)
            for kind, text in zip(kinds, texts, strict=True)
        ]


def _are_equal(values: Sequence[object]) -> bool:
    """Whether a column has only one value, as in most documents; the last one is checked first."""
    return not values or (values[0] == values[-1] and values.count(values[0]) == len(values))


def text_numbers(texts: Sequence[str | None]) -> list[int] | None:
    """Hashes of the stored texts of dates; None if there are none."""
    if texts.count(None) == len(texts):
        return None
    return [
        NO_TEXT if text is None else signed64(xxh3_64_intdigest(text.encode())) for text in texts
    ]


def _plain_text(kind: Kind) -> str:
    """The part of the hashed text that all entries have."""
    changefreq, priority = kind
    return f"|{changefreq or ''}|{'' if priority is None else priority}|"
