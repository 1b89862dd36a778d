"""The 64-bit hashes of URLs and of the values listed for them."""

from __future__ import annotations

from collections.abc import Iterable

from xxhash import xxh3_64_intdigest

SIGN_BIT = 1 << 63
TWO_TO_64 = 1 << 64


def signed64(value: int) -> int:
    """An unsigned 64-bit number as PostgreSQL's signed bigint."""
    return value - TWO_TO_64 if value >= SIGN_BIT else value


def url_hash(url: str) -> int:
    """The hash of one URL."""
    return signed64(xxh3_64_intdigest(url.encode()))


def url_hashes(urls: Iterable[str]) -> list[int]:
    """The hashes of many URLs; written out, because it runs once per listed URL."""
    digest = xxh3_64_intdigest
    return [h - TWO_TO_64 if (h := digest(url.encode())) >= SIGN_BIT else h for url in urls]
