"""One reader per sitemap format: clean text in, entries or children out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, assert_never

from siteatlas.scanner.events import SitemapType
from siteatlas.scanner.reading.entries import ReadResult, Tally
from siteatlas.scanner.reading.formats.plain import Feed, TextList
from siteatlas.scanner.reading.formats.urlset import Urlset
from siteatlas.scanner.reading.head import INDEXES, Head


class Format(Protocol):
    """Reads the text after the root's start tag, chunk by chunk."""

    def feed(self, text: str, *, final: bool = False) -> Iterator[ReadResult]:
        """The entries completed by this text, in steps that take little time each.

        `final` also checks that the document is complete.
        """

    def flush(self) -> ReadResult:
        """The complete entries that this format still buffers, when a document is truncated."""


def reader_for(head: Head, tally: Tally, base: str | None = None) -> Format:
    """The reader of a document with this head; `base` is the address of the document, if known."""
    match head.type:
        case SitemapType.STANDARD:
            return Urlset(head.root_tag, tally, base)
        case SitemapType.INDEX:
            return Urlset(
                head.root_tag, tally, base, fast=False, lists_documents=head.capability in INDEXES
            )
        case SitemapType.TEXT:
            return TextList(tally, base)
        case SitemapType.RSS:
            return Feed(head.root_tag, "item", tally, base)
        case SitemapType.ATOM:
            return Feed(head.root_tag, "entry", tally, base)
    assert_never(head.type)
