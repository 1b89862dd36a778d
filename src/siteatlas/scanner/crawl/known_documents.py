"""What the caller of a scan knows of its documents, and whether a response says something new.

Decides which validators are sent where, whether a body is the known one, and whether validators
lied, and loads the known entries of documents that are read. `visit.py` requests and reads them.
"""

from __future__ import annotations

from siteatlas.net.address import WebAddress
from siteatlas.net.response import Response
from siteatlas.scanner.crawl.frontier import UrlLimit
from siteatlas.scanner.crawl.held_body import HeldBody
from siteatlas.scanner.events import SitemapType, Validators
from siteatlas.scanner.reading.content_hash import ContentHash
from siteatlas.scanner.scan_memory import KnownDocument, KnownEntries, ScanMemory


class KnownDocuments:
    """The known documents of one scan, by address.

    One with more entries than the scan may still read is read, up to that limit.
    """

    def __init__(self, memory: ScanMemory, limit: UrlLimit) -> None:
        self._documents = memory.documents
        self._entries = memory.entries
        self._limit = limit

    @property
    def wants_digests(self) -> bool:
        """Whether the caller of the scan stores the digests of entries."""
        return self._entries is not None

    def requested(self, url: str) -> KnownDocument | None:
        """The document that a request for this URL led to."""
        return self._documents.get(url)

    def at(self, url: str) -> KnownDocument | None:
        """The document at this final URL.

        Validators and hash of another address say nothing about it.
        """
        known = self._documents.get(url)
        return known if known is not None and known.url == url else None

    def validators_to_send(self, address: WebAddress) -> Validators:
        """The validators for a request to this address: only those that it gave itself."""
        known = self.at(address.url)
        if known is None or not known.may_send_validators or not self.may_be_unchanged(known):
            return Validators()
        return known.validators

    def may_be_unchanged(self, known: KnownDocument) -> bool:
        """Whether a document may be taken as it is, without reading it."""
        return self._limit.fits(known.entry_count)

    async def load_entries(
        self, known: KnownDocument | None, body: HeldBody
    ) -> KnownEntries | None:
        """The known entries of a document that is about to be read; None if all must be read.

        Only of a list of pages that was read completely before and does not exceed the limit. The
        body is received first: what has arrived of it would be lost if the transfer ended
        meanwhile.
        """
        if (
            self._entries is None
            or known is None
            or known.content_hash is None
            or known.type is not SitemapType.STANDARD
            or not self.may_be_unchanged(known)
        ):
            return None
        await body.receive()
        return await self._entries.load(known.url)

    async def forget_entries(self, url: str) -> None:
        """Drop what was loaded of a document that turned out to be no sitemap."""
        if self._entries is not None:
            await self._entries.forget(url)


async def has_known_content(body: HeldBody, known: KnownDocument, response: Response) -> bool:
    """Whether the body of the response is that of the last complete read, byte by byte."""
    hashes = ContentHash.parse(known.content_hash)
    length = known.content_length or None
    announced = response.content_length
    if hashes is None or (length and announced is not None and announced != length):
        return False
    return await body.matches(hashes.wire, length)


def validators_in(response: Response) -> Validators:
    """The validators of a response, for later conditional requests."""
    return Validators(response.headers.get("ETag"), response.headers.get("Last-Modified"))


def lied(known: KnownDocument, given: Validators, hashes: ContentHash) -> bool:
    """Whether the validators of a complete read are the known ones although its content differs.

    A server compares the date only if there is no ETag.
    """
    before = ContentHash.parse(known.content_hash)
    if before is None or before.content == hashes.content:
        return False
    if known.validators.etag or given.etag:
        return known.validators.etag == given.etag
    return (
        known.validators.last_modified is not None
        and known.validators.last_modified == given.last_modified
    )
