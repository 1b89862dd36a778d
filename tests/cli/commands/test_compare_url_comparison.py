"""Comparing two sets of URLs: every URL once, on the right side."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence

from siteatlas.cli.commands.compare import UrlSide, Where, _path_and_query, compared


def batches_of(urls: Sequence[str], size: int = 7) -> Callable[[], AsyncIterator[Sequence[str]]]:
    async def batches() -> AsyncIterator[Sequence[str]]:
        for start in range(0, len(urls), size):
            yield urls[start : start + size]

    return batches


async def comparison(
    site: Sequence[str], other: Sequence[str], key: Callable[[str], str] = str
) -> dict[Where, list[str]]:
    found: dict[Where, list[str]] = {where: [] for where in Where}
    async for where, urls in compared(
        UrlSide(batches_of(site), key), UrlSide(batches_of(other), key)
    ):
        found[where] += urls
    return found


async def test_every_url_is_named_once_on_its_side():
    numbers = random.Random(3)
    site = [f"https://example.com/{numbers.randrange(300)}" for _ in range(400)]
    other = [f"https://example.com/{numbers.randrange(300)}" for _ in range(400)]
    found = await comparison(site, other)
    assert all(len(urls) == len(set(urls)) for urls in found.values())
    assert set(found[Where.SITE]) == set(site) - set(other)
    assert set(found[Where.OTHER]) == set(other) - set(site)
    assert set(found[Where.BOTH]) == set(site) & set(other)


async def test_sites_are_compared_by_path_and_query():
    site = ["https://example.com/a?x=1", "https://example.com", "https://example.com/only"]
    other = ["http://staging.example.com:8080/a?x=1", "http://staging.example.com:8080/"]
    found = await comparison(site, other, _path_and_query)
    assert found[Where.BOTH] == site[:2]
    assert (found[Where.SITE], found[Where.OTHER]) == (["https://example.com/only"], [])
