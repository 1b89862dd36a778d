"""What a caller of a scan knows of the documents of a site and may pass to the scan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from siteatlas.scanner.events import ChildLink, SitemapType, Validators


class KnownDocument(NamedTuple):
    """What the caller knows of a document before the scan.

    `url` is its final address, also if it is known by the requested one. `done` documents were
    finished earlier in this same scan: they are not fetched again, their `children` still are.

    The rest is of the last complete read. `validators` allow a conditional request unless
    `may_send_validators` is False; then they only show whether they lied. A document with the same
    `content_hash` is unchanged; another `content_length` (bytes as received) shows at once that it
    is not. An unchanged index yields its `children`; an unchanged document counts with its
    `entry_count` towards the URL limit of the scan and has this `type`.
    """

    url: str
    done: bool = False
    validators: Validators = Validators()
    children: tuple[ChildLink, ...] = ()
    content_hash: str | None = None
    content_length: int | None = None
    may_send_validators: bool = True
    entry_count: int = 0
    type: SitemapType | None = None


class KnownEntries(Protocol):
    """The entries of a document as the caller has stored them, by the digests of their text."""

    def find(self, digests: Sequence[int]) -> list[int | None]:
        """The position of each entry; None for one that is not known, or that was found before."""


class EntryLoader(Protocol):
    """Loads the known entries of documents, by their final URL."""

    async def load(self, url: str) -> KnownEntries | None:
        """The known entries of a document that is about to be read; None if all must be read."""

    async def forget(self, url: str) -> None:
        """Drop what was loaded of a document that is not reported as opened."""


class ScanMemory(NamedTuple):
    """The documents known before the scan, by requested URL and by final URL.

    With a loader of `entries`, entries have digests, and those of a known document that have not
    changed are recognized instead of read.
    """

    documents: Mapping[str, KnownDocument] = MappingProxyType({})
    entries: EntryLoader | None = None
