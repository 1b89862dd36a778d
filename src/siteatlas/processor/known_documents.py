"""What the scanner needs to know of stored documents: whether it may send conditional requests.

Also loads what is stored of a document that is about to be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from siteatlas.aio.fairness import fair_loop
from siteatlas.processor.documents import ScannedDocument
from siteatlas.processor.entry_memory import EntryMemory
from siteatlas.processor.fingerprints import READ_VERSION
from siteatlas.processor.known_pages import DOCUMENTS_PER_PAGE, KnownPages, PagedDocument
from siteatlas.processor.lastmod_trust import DateSample
from siteatlas.processor.memory_budget import MemoryBudget
from siteatlas.processor.stored_entries import StoredEntries
from siteatlas.scanner.events import SitemapType, Validators
from siteatlas.scanner.scan_memory import KnownDocument, ScanMemory
from siteatlas.storage.session import get_job_session
from siteatlas.storage.statements.known_sitemaps import DONE, KnownSitemap
from siteatlas.storage.statements.last_reads import load_last_read
from siteatlas.storage.statements.urls import load_entries, load_some_entries

# A document that only ever answers 304 is read in full every tenth time.
MAX_NOT_MODIFIED = 9
# Responses 304 of documents that had changed, after which none is believed any more.
MAX_VALIDATOR_LIES = 2


async def build_scan_memory(known: Mapping[UUID, KnownSitemap]) -> ScanMemory:
    """What the scanner needs to know of the stored documents of a site."""
    pages = KnownPages()
    numbers = {sitemap_id: number for number, sitemap_id in enumerate(known)}
    sitemaps = list(known.values())
    for first in range(0, len(sitemaps), DOCUMENTS_PER_PAGE):
        async with fair_loop().time_slice():
            page = sitemaps[first : first + DOCUMENTS_PER_PAGE]
            pages.add([_paged(sitemap, known, numbers) for sitemap in page])
    pages.index()
    return ScanMemory(pages)


def _paged(
    sitemap: KnownSitemap, known: Mapping[UUID, KnownSitemap], numbers: Mapping[UUID, int]
) -> PagedDocument:
    """A document with what the scanner needs to know of it."""
    done = sitemap.state in DONE
    children = [child for child in sitemap.children or () if child in known]
    if done:
        # A link may be older than this scan; what the index lists now is on the frontier.
        children = [child for child in children if known[child].state is not None]
    return PagedDocument(
        sitemap.url,
        sitemap.requested_url or sitemap.url,
        sitemap.lastmod,
        KnownDocument(sitemap.url, done=True) if done else _known_document(sitemap),
        [numbers[child] for child in children],
    )


def _known_document(sitemap: KnownSitemap) -> KnownDocument | None:
    """What the scanner may know of a document that this scan has not read; None for nothing."""
    if not _is_comparable(sitemap):
        return None
    return KnownDocument(
        url=sitemap.url,
        validators=Validators(sitemap.etag, sitemap.last_modified),
        content_hash=sitemap.content_hash,
        content_length=sitemap.wire_bytes,
        may_send_validators=_may_send_validators(sitemap),
        entry_count=sitemap.shown_count,
        type=SitemapType(sitemap.type) if sitemap.type else None,
    )


def _is_comparable(sitemap: KnownSitemap) -> bool:
    """Whether a document may turn out to be unchanged since its last complete read."""
    if sitemap.read_version != READ_VERSION or sitemap.is_gone:
        return False
    if sitemap.type == SitemapType.INDEX and sitemap.children is None:
        return False
    return bool(sitemap.content_hash or sitemap.etag or sitemap.last_modified)


def _may_send_validators(sitemap: KnownSitemap) -> bool:
    """Whether a response 304 would be believed."""
    return (
        sitemap.not_modified_count < MAX_NOT_MODIFIED
        and sitemap.validator_lies < MAX_VALIDATOR_LIES
    )


async def load_document(
    document: ScannedDocument, budget: MemoryBudget, *, with_digests: bool = False
) -> None:
    """Load what is stored of a document that is about to be read.

    The entries at once while the budget allows it, otherwise in chunks (decision 0021), which have
    no digests.
    """
    if document.fresh:
        document.memory = EntryMemory(budget)
        return
    in_parts = budget.spent
    stored = StoredEntries(in_order=in_parts)
    async with get_job_session() as session, session.begin():
        document.last_read = await load_last_read(session, document.id)
        if not in_parts:
            page = await load_entries(session, document.id, with_digests=with_digests)
            stored.extend(page)
    if in_parts:
        await _load_in_parts(document.id, stored)
    last = document.last_read
    in_doubt = last.lastmod_streak > 0 or not last.lastmod_trusted
    document.memory = EntryMemory(
        budget,
        stored,
        trusted=last.lastmod_trusted,
        sample=DateSample(last.lastmod_sample) if in_doubt else None,
    )


async def _load_in_parts(document_id: UUID, stored: StoredEntries) -> None:
    """Load the stored entries of a document in chunks, each in a short transaction."""
    after: int | None = None
    while True:
        async with get_job_session() as session, session.begin():
            page = await load_some_entries(session, document_id, after)
        if not page.hashes:
            return
        stored.extend(page)
        after = page.hashes[-1]
