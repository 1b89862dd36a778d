"""Sites for the attack on libxml2's dictionary of names, and honest ones to be read beside it.

A dictionary that documents share is made of blocks, each four times as large as the one before, until
they are 100 MB together. Long names fill most of them; short ones take the rest, until no other
document can have a name of its own. Names of this length make the blocks end just above the limit.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator

from tests.fixtures.documents import FORMATS

# By the names of the documents in a site.
DOCUMENTS = {
    "urlset.xml": FORMATS["urlset"],
    "index.xml": FORMATS["index"],
    "feed.rss": FORMATS["rss"],
    "feed.atom": FORMATS["atom"],
}
LONG = 19_000
# The length of the names in each scan of the attack, in this order.
LENGTHS = (*[LONG] * 10, 2_000, 200, 20, 7)
LONG_DOCUMENT, SHORT_DOCUMENT = 3_000_000, 300_000
# Larger tags would be refused for their size.
TAG_CHARS, MAX_ATTRIBUTES = 20_000, 100
HONEST_ENTRIES = 300
NEWS = "http://www.google.com/schemas/sitemap-news/0.9"
IMAGE = "http://www.google.com/schemas/sitemap-image/1.1"


def junk_pages(turn: int, length: int) -> dict[str, bytes | str]:
    """A site with one document of each format, full of attribute names that no other has."""
    robots = "".join(f"Sitemap: {{base}}/{turn}/{name}\n" for name in DOCUMENTS)
    pages: dict[str, bytes | str] = {"/robots.txt": robots}
    for name in DOCUMENTS:
        document = "".join(_junk_document(name, turn, length))
        pages[f"/{turn}/{name}"] = gzip.compress(document.encode(), 1)
    return pages


def _junk_document(kind: str, turn: int, length: int) -> Iterator[str]:
    start, entry, link, end = DOCUMENTS[kind]
    yield start
    count = (LONG_DOCUMENT if length == LONG else SHORT_DOCUMENT) // (length + 4)
    step = min(MAX_ATTRIBUTES, max(1, TAG_CHARS // (length + 4)))
    for first in range(0, count, step):
        numbers = range(first, min(first + step, count))
        names = (f"{kind[0]}{kind[-1]}{turn}x{number}".ljust(length, "n") for number in numbers)
        attributes = " ".join(f'{name}=""' for name in names)
        yield f"<{entry}><{link}>https://a.example/{first}</{link}><x {attributes}/></{entry}>"
    yield end


def honest_pages(prefix: str) -> dict[str, str]:
    """A site with an index, news with images, and two feeds; `prefix` makes names of its own."""
    return {
        "/robots.txt": "".join(
            f"Sitemap: {{base}}/{name}\n" for name in ("index.xml", "feed.rss", "feed.atom")
        ),
        "/index.xml": (
            f"{FORMATS['index'].start}<sitemap {prefix}i=''><loc>{{base}}/news.xml</loc></sitemap>"
            f"{FORMATS['index'].end}"
        ),
        "/news.xml": _news(prefix),
        "/feed.rss": _feed("rss", prefix),
        "/feed.atom": _feed("atom", prefix),
    }


def _news(prefix: str) -> str:
    entries = "".join(
        f"<url><loc>{{base}}/news/{number}</loc><{prefix}n:news><{prefix}n:title>T{number}"
        f"</{prefix}n:title></{prefix}n:news><{prefix}m:image><{prefix}m:loc>{{base}}/{number}.jpg"
        f"</{prefix}m:loc></{prefix}m:image></url>"
        for number in range(HONEST_ENTRIES)
    )
    names = f'xmlns:{prefix}n="{NEWS}" xmlns:{prefix}m="{IMAGE}"'
    start = FORMATS["urlset"].start.replace("<urlset", f"<urlset {names}")
    return f"{start}{entries}</urlset>"


def _feed(kind: str, prefix: str) -> str:
    start, entry, link, end = FORMATS[kind]
    entries = "".join(
        f"<{entry}><{link}>{{base}}/{kind}/{number}</{link}><{prefix}t>x</{prefix}t></{entry}>"
        for number in range(HONEST_ENTRIES)
    )
    return f"{start}{entries}{end}"
