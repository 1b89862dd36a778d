"""Compares the URLs of a site with those of another source, in about 9 bytes per URL and side.

The other source is read twice: once for what it has, and once to name what only it has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from siteatlas.hash_arrays import HashArrays
from siteatlas.storage.hashes import url_hashes


class Where(StrEnum):
    """Where a URL was found."""

    SITE = "site"
    OTHER = "other"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class UrlSide:
    """One side of a comparison: its URLs in batches, as often as needed, and what they mean.

    `key` says by what URLs are compared, such as the URL itself or its path.
    """

    batches: Callable[[], AsyncIterator[Sequence[str]]]
    key: Callable[[str], str]

    async def hashed(self) -> AsyncIterator[tuple[Sequence[str], list[int]]]:
        """The URLs in batches, with the hashes of their keys."""
        async for urls in self.batches():
            yield urls, url_hashes(map(self.key, urls))


async def compared(site: UrlSide, other: UrlSide) -> AsyncIterator[tuple[Where, list[str]]]:
    """Each different URL once, in batches: those of the site first, then those of the other."""
    in_other, in_site = HashArrays(), HashArrays()
    async for _urls, hashes in other.hashed():
        for number in hashes:
            in_other.add(number)
    async for urls, hashes in site.hashed():
        pairs = zip(urls, hashes, strict=True)
        new = [(url, number) for url, number in pairs if in_site.add(number)]
        yield Where.SITE, [url for url, number in new if number not in in_other]
        yield Where.BOTH, [url for url, number in new if number in in_other]
    named = HashArrays()
    async for urls, hashes in other.hashed():
        pairs = zip(urls, hashes, strict=True)
        only = [url for url, number in pairs if number not in in_site and named.add(number)]
        yield Where.OTHER, only
