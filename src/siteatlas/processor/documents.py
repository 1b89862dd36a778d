"""The documents of a running scan, as the recorder and the scanner know them.

`DocumentRegistry` finds the document of a URL; of those that wait or have been read it keeps only
the ids. What is stored of the entries of a document is loaded in the background once it is opened.
`build_scan_memory` tells the scanner what is stored, so that it may send conditional requests.
"""

from __future__ import annotations

import asyncio
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import orjson

from siteatlas.aio import fair_loop
from siteatlas.catalog.problems import FoundProblem
from siteatlas.catalog.sitemaps import (
    DONE,
    NEVER_READ,
    KnownSitemap,
    LastRead,
    load_last_read,
)
from siteatlas.catalog.url_copy import UrlRows
from siteatlas.catalog.urls import StoredEntries, load_entries, load_more_entries, url_hash
from siteatlas.errors import UrlLimitReached
from siteatlas.hash_arrays import index_of
from siteatlas.net.gate import OriginHeaders
from siteatlas.processor.entries import (
    READ_VERSION,
    DateSample,
    EntryMemory,
    MemoryBudget,
    UrlBreakdown,
)
from siteatlas.scanner.events import (
    ChildLink,
    DiscoveryMethod,
    DocumentClosed,
    DocumentOutcome,
    SitemapType,
    UnchangedBy,
    Validators,
)
from siteatlas.scanner.options import KnownDocument, ScanMemory
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.entries import Tally
from siteatlas.storage.models import SitemapScanState, SitemapStatus
from siteatlas.storage.session import get_job_session
from siteatlas.text import unaltered

MAX_VALIDATOR_CHARS = 1_024
DOCUMENTS_PER_PAGE = 100


@dataclass(frozen=True, slots=True)
class OpenedScan:
    """The scan that a job works on, and what was stored of its site before.

    `known` are the stored documents, until the scanner and the recorder have what they need of
    them: not all, if there are more than `MAX_LOADED`. `stored_count` is how many there are.
    `manual` are the addresses of documents that a user submitted for this site. `has_baseline`: an
    earlier scan of the site was complete; changes of URLs are reported only after it. `headers` are
    sent with the requests to one origin.
    """

    id: int
    domain_id: UUID
    domain: str
    resumed: bool
    known: dict[UUID, KnownSitemap]
    stored_count: int = 0
    manual: tuple[str, ...] = ()
    has_baseline: bool = False
    headers: OriginHeaders | None = None


@dataclass(slots=True)
class ScannedDocument:
    """One document: its identity, what is stored of it, and what changed since the last write.

    `stored` documents have a row; `fresh` ones had none before this attempt, so no URLs either.
    `redirected` ones are found under more than one URL.
    `loading` sets `last_read`, which is what earlier reads have left, and `memory`, which is there
    while it is read, as is `breakdown`. `tally` holds the problems that show only in comparison.
    `set_aside` are entries that wait for a later listing of their URL, `child_ids` the ids of what
    an index lists, 16 bytes each. These are None if there is nothing, since thousands of documents
    may wait.
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
    set_aside: UrlRows | None = None
    child_ids: bytearray | None = None
    tally: Tally | None = None
    closed: DocumentClosed | None = None
    read_count: int = 0
    redirected: bool = False

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
        if self.tally is not None:
            problems = {**event.problems, **self.tally.counts()}
            samples = {**event.samples, **self.tally.kept_samples()}
            event = event._replace(problems=problems, samples=samples)
            self.tally = None
        self.closed = event
        if self.memory is not None:
            self.read_count = len(self.memory)
            self.forget()
        status = _status_after(event)
        if status is not SitemapStatus.PENDING or self.fresh:
            self.changes |= {
                "status": status,
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
        # Whether the stored entries are those of the content that has these validators.
        has_content = (
            event.outcome is DocumentOutcome.COMPLETE
            or event.unchanged_by is UnchangedBy.CONTENT_HASH
        )
        if has_content:
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
        ids = bytes(self.child_ids or b"")
        return [UUID(bytes=ids[first : first + 16]) for first in range(0, len(ids), 16)]

    def start_loading(self, steps: Coroutine[Any, Any, None]) -> None:
        """Load in the background what is stored of the document."""
        self.loading = asyncio.create_task(steps, name=f"load {self.id}")

    async def wait_loaded(self) -> None:
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
        flags = {"images": "has_images", "videos": "has_videos", "news": "has_news"}
        self.changes |= {flag: True for key, flag in flags.items() if key in keys}

    def drop_result(self) -> None:
        """Drop how the reading ended, once it has been written."""
        if self.closed is not None and self.memory is None:
            self.closed = None

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
            "problems": dict(self.closed.problems) or None,
        }

    def found_problems(self) -> list[FoundProblem]:
        """The problems of a closed document, with samples."""
        assert self.closed is not None
        samples = self.closed.samples
        return [
            FoundProblem(self.id, code, count, [asdict(one) for one in samples.get(code, ())])
            for code, count in self.closed.problems.items()
        ]


class DocumentRegistry:
    """Finds the document of a URL, whether it is the listed one or the one after redirects.

    Of documents that have a row and are not in work, 25 bytes are kept: there may be thousands of
    them in each of many scans, for hours. The open ones, which are being read, have what is stored
    of their entries.
    """

    def __init__(self, known: Iterable[KnownSitemap]) -> None:
        self._by_url: dict[str, ScannedDocument] = {}
        self._by_id: dict[UUID, ScannedDocument] = {}
        # Sorted hashes of URLs, the ids of the documents, and whether this scan has found them.
        self._idle = array("q")
        self._idle_ids, self._idle_fresh = bytearray(), bytearray()
        self._open: dict[UUID, ScannedDocument] = {}
        self.learn(known)

    def learn(self, known: Iterable[KnownSitemap]) -> None:
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
        place = index_of(self._idle, url_hash(url)) if found is None else None
        if place is None:
            return found
        document = ScannedDocument(
            id=self._idle_id(place),
            url=url,
            requested_url=url,
            method=DiscoveryMethod.SITEMAP_INDEX,
            stored=True,
            fresh=bool(self._idle_fresh[place]),
        )
        del self._idle[place], self._idle_ids[16 * place : 16 * place + 16], self._idle_fresh[place]
        return self._keep(document)

    def id_of(self, url: str) -> UUID | None:
        found = self._by_url.get(url)
        if found is not None:
            return found.id
        place = index_of(self._idle, url_hash(url))
        return None if place is None else self._idle_id(place)

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

    async def open(self, document: ScannedDocument, budget: MemoryBudget) -> None:
        """Note that a document is read, and start to load its entries.

        It may be opened again after a redirect: its memory is returned to the budget before the
        entries are loaded again (decision 0009).
        """
        await document.abandon()
        document.start_loading(load_document(document, budget))
        self._open[document.id] = document

    def opened(self, document_id: UUID) -> ScannedDocument | None:
        """The document of this id, if it is open."""
        return self._open.get(document_id)

    def close(self, document: ScannedDocument, event: DocumentClosed) -> None:
        """Note how the reading of a document ended."""
        document.close(event)
        self._open.pop(document.id, None)

    async def abandon(self) -> None:
        """Drop what is loaded of all open documents."""
        for document in self._open.values():
            await document.abandon()

    def _keep(self, document: ScannedDocument) -> ScannedDocument:
        self._by_url[document.url] = self._by_id[document.id] = document
        return document

    def _redirect(self, requested_url: str, document: ScannedDocument) -> None:
        replaced = self.find(requested_url)
        if replaced is not None and replaced is not document and replaced.url == requested_url:
            self._by_id.pop(replaced.id, None)
        document.redirected = True
        self._by_url[document.url] = self._by_url[requested_url] = document

    def _forget_if_idle(self, document: ScannedDocument) -> None:
        if document.is_idle:
            del self._by_url[document.url], self._by_id[document.id]
            key = url_hash(document.url)
            place = bisect_left(self._idle, key)
            # Another document with the same hash is replaced.
            end = place + (self._idle[place : place + 1] == array("q", [key]))
            self._idle[place:end] = array("q", [key])
            self._idle_ids[16 * place : 16 * end] = document.id.bytes
            self._idle_fresh[place:end] = bytes([document.fresh])

    def _idle_id(self, place: int) -> UUID:
        return UUID(bytes=bytes(self._idle_ids[16 * place : 16 * place + 16]))


def _status_after(event: DocumentClosed) -> SitemapStatus:
    """The status after a read; pending if the URL limit left no room for any entry."""
    if event.outcome in (DocumentOutcome.COMPLETE, DocumentOutcome.UNCHANGED):
        return SitemapStatus.COMPLETED
    if event.error_code != UrlLimitReached.code:
        return SitemapStatus.FAILED
    # The limit was asked for, and is no fault of the document.
    cut = event.outcome is DocumentOutcome.CUT
    return SitemapStatus.COMPLETED if cut else SitemapStatus.PENDING


def short_id(document_id: UUID) -> int:
    """The last half of an id as a signed number: enough to tell the documents of a scan apart."""
    return int.from_bytes(document_id.bytes[8:], signed=True)


async def load_document(document: ScannedDocument, budget: MemoryBudget) -> None:
    """Load what is stored of a document that is about to be read.

    The entries at once while the budget allows it, otherwise in chunks (decision 0009).
    """
    if document.fresh:
        document.memory = EntryMemory(budget)
        return
    in_parts = budget.spent
    stored = StoredEntries(in_order=in_parts)
    async with get_job_session() as session, session.begin():
        document.last_read = await load_last_read(session, document.id)
        if not in_parts:
            await load_entries(session, document.id, stored)
    has_more = in_parts
    while has_more:
        async with get_job_session() as session, session.begin():
            has_more = await load_more_entries(session, document.id, stored)
    last = document.last_read
    in_doubt = last.lastmod_streak > 0 or not last.lastmod_trusted
    document.memory = EntryMemory(
        budget,
        stored,
        trusted=last.lastmod_trusted,
        sample=DateSample(last.lastmod_sample) if in_doubt else None,
    )


# A stored document: its final and its requested URL, the date that an index lists for it, what the
# scanner may know of it, and the numbers of the documents that it lists.
Record = tuple[str, str, str | None, list[Any] | None, list[int]]


async def build_scan_memory(known: Mapping[UUID, KnownSitemap]) -> ScanMemory:
    """What the scanner needs to know of the stored documents of a site."""
    pages: list[bytes] = []
    keys: list[tuple[int, bool, int]] = []
    numbers = {sitemap_id: number for number, sitemap_id in enumerate(known)}
    sitemaps = list(known.values())
    for first in range(0, len(sitemaps), DOCUMENTS_PER_PAGE):
        async with fair_loop().time_slice():
            page = sitemaps[first : first + DOCUMENTS_PER_PAGE]
            records = [_record(sitemap, known, numbers) for sitemap in page]
            # Addresses of a site have most of their text in common, so the fastest level suffices.
            pages.append(zlib.compress(orjson.dumps(records), 1))
            for number, (url, requested_url, _, values, _) in enumerate(records, start=first):
                if values is not None:
                    keys.append((url_hash(url), False, number))
                    keys.append((url_hash(requested_url), True, number))
    return KnownPages(pages, keys)


def _record(
    sitemap: KnownSitemap, known: Mapping[UUID, KnownSitemap], numbers: Mapping[UUID, int]
) -> Record:
    done = sitemap.state in DONE
    children = [child for child in sitemap.children or () if child in known]
    if done:
        # A link may be older than this scan; what the index lists now is on the frontier.
        children = [child for child in children if known[child].state is not None]
    found = KnownDocument(sitemap.url, done=True) if done else _known_document(sitemap)
    return (
        sitemap.url,
        sitemap.requested_url or sitemap.url,
        sitemap.lastmod.isoformat() if sitemap.lastmod else None,
        found and _packed(found),
        [numbers[child] for child in children],
    )


def _known_document(sitemap: KnownSitemap) -> KnownDocument | None:
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
    if sitemap.read_version != READ_VERSION or sitemap.is_gone:
        return False
    if sitemap.type == SitemapType.INDEX and sitemap.children is None:
        return False
    return bool(sitemap.content_hash or sitemap.etag or sitemap.last_modified)


def _may_send_validators(sitemap: KnownSitemap) -> bool:
    # Responses 304 of documents that had changed, after which none is believed any more.
    # A document that only ever answers 304 is read in full every tenth time.
    return sitemap.not_modified_count < 9 and sitemap.validator_lies < 2


class KnownPages(Mapping[str, KnownDocument]):
    """The known documents of one site, by requested and by final URL.

    A scan may know thousands of documents for hours. They are kept in compressed pages and found by
    the hashes of their addresses: `keys` are these, whether they are requested ones, and the number
    of the document.
    """

    def __init__(self, pages: list[bytes], keys: Iterable[tuple[int, bool, int]]) -> None:
        self._pages = pages
        self._last: tuple[int, list[Any]] = (-1, [])
        # A final address comes before a requested one.
        numbers: dict[int, int] = {}
        for key, _, number in sorted(keys):
            numbers.setdefault(key, number)
        self._hashes, self._numbers = array("q", numbers), array("L", numbers.values())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[str]:
        for number in range(len(self._pages)):
            for url, requested_url, _, values, _ in self._page(number):
                if values is not None:
                    yield from dict.fromkeys((url, requested_url))

    def __getitem__(self, url: str) -> KnownDocument:
        index = index_of(self._hashes, url_hash(url))
        if index is None:
            raise KeyError(url)
        final_url, requested_url, _, values, children = self._record(self._numbers[index])
        if url not in (final_url, requested_url):
            raise KeyError(url)
        return _unpacked(final_url, values)._replace(children=tuple(self._links(children)))

    def _links(self, children: Sequence[int]) -> Iterator[ChildLink]:
        for number in children:
            _, requested_url, lastmod, _, _ = self._record(number)
            yield ChildLink(requested_url, lastmod and datetime.fromisoformat(lastmod))

    def _record(self, number: int) -> Any:
        page, place = divmod(number, DOCUMENTS_PER_PAGE)
        return self._page(page)[place]

    def _page(self, number: int) -> list[Any]:
        """A decompressed page; the last one is kept, since neighbours are often asked for."""
        if self._last[0] != number:
            self._last = number, orjson.loads(zlib.decompress(self._pages[number]))
        return self._last[1]


def _packed(known: KnownDocument) -> list[Any]:
    _, done, validators, _, *others = known
    return [done, *validators, *others]


def _unpacked(url: str, values: list[Any]) -> KnownDocument:
    done, etag, last_modified, *others, kind = values
    document_type = None if kind is None else SitemapType(kind)
    fields: list[Any] = [url, done, Validators(etag, last_modified), (), *others, document_type]
    return KnownDocument(*fields)
