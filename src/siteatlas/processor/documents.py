"""A running scan and its documents, as the recorder knows them between two writes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID, uuid4

from siteatlas.processor.entry_memory import EntryMemory
from siteatlas.processor.idle_documents import IdleDocuments
from siteatlas.processor.url_breakdown import UrlBreakdown
from siteatlas.safe_text import unaltered
from siteatlas.scanner.events import (
    DiscoveryMethod,
    DocumentClosed,
    DocumentOutcome,
    UnchangedBy,
)
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.tally import Tally
from siteatlas.storage.hashes import url_hash
from siteatlas.storage.models import SitemapScanState, SitemapStatus
from siteatlas.storage.statements.known_sitemaps import KnownSitemap, KnownSitemaps
from siteatlas.storage.statements.last_reads import NEVER_READ, LastRead
from siteatlas.storage.statements.problems import FoundProblem
from siteatlas.storage.statements.url_rows import UrlRow

MAX_VALIDATOR_CHARS = 1_024
EXTRA_FLAGS = {"images": "has_images", "videos": "has_videos", "news": "has_news"}


@dataclass(frozen=True, slots=True)
class OpenedScan:
    """The scan that a job works on, and what was stored of its site before.

    `manual` are the addresses of documents that a user submitted for this site. `has_baseline`: an
    earlier scan of the site was complete; changes of URLs are reported only after it.
    """

    id: int
    domain_id: UUID
    domain: str
    resumed: bool
    known: KnownSitemaps
    manual: tuple[str, ...] = ()
    has_baseline: bool = False


@dataclass(slots=True)
class ScannedDocument:
    """One document: its identity, what is stored of it, and what changed since the last write.

    `stored` documents have a row; `fresh` ones had none before this attempt, so no URLs either.
    `redirected` ones are found under more than one URL.
    `loading` sets `last_read`, which is what earlier reads have left, and `memory`, which is there
    while it is read, as is `breakdown`. `tally` holds the problems that show only in comparison.
    `set_aside` are entries that wait for a later listing of their URL, `child_ids` the ids of what
    an index lists, 16 bytes each. These are None if there is nothing, since thousands of documents
    may wait. `preloaded`: the memory was loaded before the document was opened.
    `must_read_again`: the next scan reads all of its entries, whether they have changed or not.
    """

    id: UUID
    url: str
    requested_url: str
    method: DiscoveryMethod
    stored: bool
    fresh: bool
    changes: dict[str, Any] = field(default_factory=dict)
    loading: asyncio.Task[None] | None = None
    memory: EntryMemory | None = None
    breakdown: UrlBreakdown | None = None
    last_read: LastRead = NEVER_READ
    set_aside: dict[int, UrlRow] | None = None
    child_ids: bytearray | None = None
    tally: Tally | None = None
    closed: DocumentClosed | None = None
    read_count: int = 0
    redirected: bool = False
    preloaded: bool = False
    must_read_again: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether only its id must be kept in memory: an index lists it, and it has a row."""
        return (
            self.stored
            and self.loading is None
            and self.memory is None
            and self.closed is None
            and not self.changes
            and self.method is DiscoveryMethod.SITEMAP_INDEX
            and not self.redirected
        )

    def found_by(self, method: DiscoveryMethod) -> None:
        """Set how the document was found, unless a user submitted it."""
        if self.method is not DiscoveryMethod.MANUAL:
            self.method = method
            self.changes["discovery_method"] = method.value

    def clear_validators(self) -> None:
        """Forget what makes the document unchanged, until it has been read to the end.

        Else, if only half of a new version were stored and the site returned to the old one, a
        response 304 would keep that half forever.
        """
        if not self.fresh:
            self.changes |= {"etag": None, "last_modified": None, "content_hash": None}

    def close(self, event: DocumentClosed) -> None:
        """Record how the reading ended; drop the entries loaded for comparison."""
        self.closed = event
        if self.memory is not None:
            self.read_count = len(self.memory)
            self.forget()
        read = event.outcome in (DocumentOutcome.COMPLETE, DocumentOutcome.UNCHANGED)
        self.changes |= {
            "status": SitemapStatus.COMPLETED if read else SitemapStatus.FAILED,
            "http_status": event.http_status,
            "fetch_seconds": event.seconds,
            "error_code": event.error_code,
            "error": event.error,
        }
        if event.outcome is not DocumentOutcome.UNCHANGED:
            self.changes |= {
                "wire_bytes": event.wire_bytes,
                "decoded_bytes": event.decoded_bytes,
            }
        if event.type is not None:
            self.changes["type"] = event.type.value
        if _has_new_validators(event) and not self.must_read_again:
            self.changes |= {
                "etag": unaltered(event.validators.etag, MAX_VALIDATOR_CHARS),
                "last_modified": unaltered(event.validators.last_modified, MAX_VALIDATOR_CHARS),
                "content_hash": event.content_hash,
            }

    def add_child(self, child_id: UUID) -> None:
        """Note a document that an index lists."""
        if self.child_ids is None:
            self.child_ids = bytearray()
        self.child_ids += child_id.bytes

    def listed_children(self) -> list[UUID]:
        """The ids of the documents that an index lists."""
        ids = bytes(self.child_ids or b"")
        return [UUID(bytes=ids[first : first + 16]) for first in range(0, len(ids), 16)]

    def start_loading(self, steps: Coroutine[Any, Any, None]) -> None:
        """Load in the background what is stored of the document."""
        self.loading = asyncio.create_task(steps, name=f"load {self.id}")

    async def wait_loaded(self) -> None:
        """Wait until what is stored of the document is loaded."""
        if self.loading is not None:
            await self.loading
            self.loading = None

    async def abandon(self) -> None:
        """Stop loading, and drop what is only needed while the document is read."""
        if self.loading is not None:
            self.loading.cancel()
            await asyncio.gather(self.loading, return_exceptions=True)
            self.loading = None
        self.forget()

    def forget(self) -> None:
        """Drop what is only needed while the document is read."""
        self.set_aside = self.child_ids = self.breakdown = None
        self.preloaded = False
        if self.memory is not None:
            self.memory.release()
            self.memory = None

    def note_repeated(self, url: str) -> None:
        """Count a URL that the document lists more than once as a problem."""
        if self.tally is None:
            self.tally = Tally()
        self.tally.note(ProblemCode.DUPLICATE_URL, url=url)

    def flag_extras(self, extras: Iterable[Mapping[str, Any] | None]) -> None:
        """Set the flags of the stored document for the kinds of extras that its entries have."""
        keys = {key for extra in extras if extra for key in extra}
        self.changes |= {flag: True for key, flag in EXTRA_FLAGS.items() if key in keys}

    def drop_result(self) -> None:
        """Drop how the reading ended, once it has been written."""
        if self.closed is not None and self.memory is None:
            self.closed = None
            self.tally = None

    def scan_row(self) -> dict[str, Any]:
        """The row of `sitemap_scans` for a closed document."""
        assert self.closed is not None
        return {
            "sitemap_id": self.id,
            "state": SitemapScanState(self.closed.outcome.value),
            "http_status": self.closed.http_status,
            "error_code": self.closed.error_code,
            "url_count": self.read_count,
            "skipped_count": self.closed.skipped_count,
            "wire_bytes": self.closed.wire_bytes,
            "decoded_bytes": self.closed.decoded_bytes,
            "seconds": self.closed.seconds,
            "problems": self._problem_counts() or None,
        }

    def found_problems(self) -> list[FoundProblem]:
        """The problems of a closed document, with samples."""
        assert self.closed is not None
        compared = self.tally.kept_samples() if self.tally else {}
        samples = {**self.closed.samples, **compared}
        return [
            FoundProblem(self.id, code, count, [asdict(one) for one in samples.get(code, ())])
            for code, count in self._problem_counts().items()
        ]

    def _problem_counts(self) -> dict[str, int]:
        """Counts to store: problems the scanner found, and those found in comparison."""
        assert self.closed is not None
        compared = self.tally.counts() if self.tally else {}
        return {**self.closed.problems, **compared}


def _has_new_validators(event: DocumentClosed) -> bool:
    """Whether a document has the content that its validators and its hash are of."""
    return (
        event.outcome is DocumentOutcome.COMPLETE or event.unchanged_by is UnchangedBy.CONTENT_HASH
    )


class DocumentRegistry:
    """Finds the document of a URL, whether it is the listed one or the one after redirects.

    Of documents that have a row and are not in work, the ids alone are kept: there may be
    thousands of them in each of many scans, for hours.
    """

    def __init__(self, known: Iterable[KnownSitemap]) -> None:
        self._by_url: dict[str, ScannedDocument] = {}
        self._by_id: dict[UUID, ScannedDocument] = {}
        self._idle = IdleDocuments()
        self.learn(known)

    def learn(self, known: Iterable[KnownSitemap]) -> None:
        """Add stored documents."""
        for sitemap in known:
            requested_url = sitemap.requested_url or sitemap.url
            document = ScannedDocument(
                id=sitemap.id,
                url=sitemap.url,
                requested_url=requested_url,
                method=DiscoveryMethod(sitemap.discovery_method),
                stored=True,
                fresh=False,
                redirected=requested_url != sitemap.url,
            )
            self._keep(document)
            self._by_url.setdefault(requested_url, document)
            self._forget_if_idle(document)

    def find(self, url: str) -> ScannedDocument | None:
        """The document of a URL, if there is one."""
        found = self._by_url.get(url)
        if found is None:
            idle = self._idle.take(url_hash(url))
            if idle is not None:
                found = self._keep(_listed_document(url, idle[0], fresh=idle[1]))
        return found

    def id_of(self, url: str) -> UUID | None:
        """The id of the document of a URL, if there is one."""
        found = self._by_url.get(url)
        return self._idle.id_of(url_hash(url)) if found is None else found.id

    def knows(self, url: str) -> bool:
        """Whether there is a document of this URL."""
        return url in self._by_url or url_hash(url) in self._idle

    def listed(self, url: str, method: DiscoveryMethod) -> ScannedDocument:
        """The document of a URL that is about to be requested."""
        document = self.find(url)
        if document is None:
            document = ScannedDocument(
                id=uuid4(), url=url, requested_url=url, method=method, stored=False, fresh=True
            )
            self._keep(document)
        return document

    def resolve_redirect(
        self, url: str, requested_url: str, method: DiscoveryMethod
    ) -> ScannedDocument:
        """The document at the final `url`; a redirect moves the one that was listed."""
        document = self.find(url)
        if document is None:
            document = self.listed(requested_url, method)
            if url != document.url:
                document.url = url
                document.changes |= {"url": url, "url_hash": url_hash(url)}
                document.changes["requested_url"] = requested_url
        if url != requested_url:
            self._redirect(requested_url, document)
        return document

    def mark_stored(self, sitemap_ids: Iterable[UUID]) -> None:
        """Record that these documents have a row and that all their changes are written."""
        for sitemap_id in sitemap_ids:
            document = self._by_id.get(sitemap_id)
            if document is not None:
                document.stored = True
                document.drop_result()
                self._forget_if_idle(document)

    def _keep(self, document: ScannedDocument) -> ScannedDocument:
        """Index a scanned document by its URL and its id."""
        self._by_url[document.url] = self._by_id[document.id] = document
        return document

    def _redirect(self, requested_url: str, document: ScannedDocument) -> None:
        """Index a document by one more URL, replacing the document that was listed under it."""
        replaced = self.find(requested_url)
        if replaced is not None and replaced is not document and replaced.url == requested_url:
            self._by_id.pop(replaced.id, None)
        document.redirected = True
        self._by_url[document.url] = self._by_url[requested_url] = document

    def _forget_if_idle(self, document: ScannedDocument) -> None:
        """Replace a scanned document that is idle by its id, which takes less memory."""
        if document.is_idle:
            del self._by_url[document.url], self._by_id[document.id]
            self._idle.add(url_hash(document.url), document.id, fresh=document.fresh)


def _listed_document(url: str, document_id: UUID, *, fresh: bool) -> ScannedDocument:
    """A document that an index lists and that has a row."""
    return ScannedDocument(
        id=document_id,
        url=url,
        requested_url=url,
        method=DiscoveryMethod.SITEMAP_INDEX,
        stored=True,
        fresh=fresh,
    )
