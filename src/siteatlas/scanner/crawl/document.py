"""A document on its way through the crawl: from candidate to verdict.

A `CrawlCandidate` is an address where a sitemap may be, a `FetchedDocument` what is known of it
while it is read.
`SiteHosts` says which hosts a scan may crawl, `Placement` notes listed pages that are elsewhere.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from siteatlas.errors import ForeignHostLimit, SiteatlasError
from siteatlas.net.address import WebAddress, bare_host
from siteatlas.net.egress import is_private_host, is_registrable, registrable_domain
from siteatlas.scanner.events import (
    CandidateJudged,
    ChildLink,
    DiscoveryMethod,
    DocumentClosed,
    DocumentOpened,
    DocumentOutcome,
    Emit,
    EntriesRead,
    EntryColumns,
    SitemapType,
    UnchangedBy,
    Validators,
    Verdict,
)
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.document import DocumentReader, DuplicateUrls
from siteatlas.scanner.reading.entries import Tally, all_begin_with

if TYPE_CHECKING:
    from siteatlas.scanner.crawl.readers import ReadSummary


FOREIGN_DOCUMENTS_PER_DOMAIN = 20
FOREIGN_DOCUMENTS_PER_SCAN = 200


@dataclass(frozen=True, slots=True)
class CrawlCandidate:
    """An address where a sitemap may be, and how it was discovered.

    `may_be_page`: a user gave the address, and its name is not that of a sitemap. If it is not a
    sitemap, the address is treated as that of the site.
    """

    address: WebAddress
    method: DiscoveryMethod
    depth: int = 0
    parent_url: str | None = None
    parent_host: str | None = None
    listed_lastmod: datetime | None = None
    may_be_page: bool = False
    below_robots: bool = False

    @property
    def named_by_robots(self) -> bool:
        """Whether robots.txt names this document or an index above it."""
        return self.below_robots or self.method is DiscoveryMethod.ROBOTS_TXT

    @property
    def is_guess(self) -> bool:
        return self.method is DiscoveryMethod.COMMON_PATH

    @property
    def is_child(self) -> bool:
        """Whether an index lists it."""
        return self.method is DiscoveryMethod.SITEMAP_INDEX


@dataclass(slots=True, kw_only=True)
class FetchedDocument:
    """One document while it is read: the state of a visit, or of the reading of a local file.

    There is no `reader` before the body arrives, and none if the document is unchanged: it then has
    `content_hash`, `type` and `wire_bytes` itself. Of a document that a reader process reads, it is
    the summary. `claimed_url` is the target of a redirect that this visit reads.

    `children_left_out`: the filter of the scan left out some of what an index lists.
    `entries_to_skip` and `children_to_skip` were sent before the reader process was lost.
    """

    candidate: CrawlCandidate
    url: str
    http_status: int | None = None
    reader: DocumentReader | ReadSummary | None = None
    validators: Validators = Validators()
    content_hash: str | None = None
    type: SitemapType | None = None
    wire_bytes: int = 0
    unchanged_by: UnchangedBy | None = None
    proves_removals: bool = True
    validators_lied: bool = False
    is_open: bool = False
    placement: Placement | None = None
    duplicates: DuplicateUrls | None = None
    unsent: EntryColumns = field(default_factory=EntryColumns)
    entries_sent: int = 0
    children_found: int = 0
    children_left_out: bool = False
    claimed_url: str | None = None
    reader_lost: bool = False
    entries_to_skip: int = 0
    children_to_skip: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def requested_url(self) -> str:
        return self.candidate.address.url

    def opened(self) -> DocumentOpened | None:
        """The event to emit once the type is known; None before, and afterwards."""
        if self.is_open or self.reader is None or self.reader.type is None:
            return None
        self.is_open = True
        return DocumentOpened(
            url=self.url,
            requested_url=self.requested_url,
            method=self.candidate.method,
            type=self.reader.type,
            parent_url=self.candidate.parent_url,
            depth=self.candidate.depth,
            http_status=self.http_status,
            listed_lastmod=self.candidate.listed_lastmod,
        )

    def closed(
        self, outcome: DocumentOutcome, error: SiteatlasError | None = None
    ) -> DocumentClosed:
        """The event to emit at the end."""
        reader = self.reader
        has_hash = outcome is DocumentOutcome.COMPLETE and self.proves_removals
        return DocumentClosed(
            url=self.url,
            requested_url=self.requested_url,
            outcome=outcome,
            method=self.candidate.method,
            type=reader.type if reader else self.type,
            parent_url=self.candidate.parent_url,
            error_code=error.code if error else None,
            error=error.message if error else None,
            http_status=self.http_status,
            entry_count=self.entries_sent,
            skipped_count=reader.tally.skipped if reader else 0,
            wire_bytes=reader.wire_bytes if reader else self.wire_bytes,
            decoded_bytes=reader.decoded_bytes if reader else 0,
            seconds=time.monotonic() - self.started,
            validators=self.validators,
            content_hash=str(reader.content_hash()) if reader and has_hash else self.content_hash,
            problems=reader.tally.counts() if reader else {},
            samples=reader.tally.kept_samples() if reader else {},
            unchanged_by=self.unchanged_by,
            is_window=reader.is_window if reader else False,
            proves_removals=self.proves_removals,
            validators_lied=self.validators_lied,
        )

    @property
    def redirected_to(self) -> str | None:
        """The address of the document if the request for it was redirected."""
        return self.url if self.url != self.requested_url else None

    def begin_again(self) -> None:
        """Prepare to read the document once more: its reader process was lost on the way."""
        self.reader_lost = True
        self.type = self.reader.type if self.reader else None
        self.reader = None
        self.entries_to_skip = self.entries_sent
        self.children_to_skip = self.children_found

    def unsent_columns(self, columns: EntryColumns) -> EntryColumns:
        """The entries of a result without those that were sent before a process was lost."""
        skipped = min(self.entries_to_skip, len(columns))
        if not skipped:
            return columns
        self.entries_to_skip -= skipped
        return columns.where(place >= skipped for place in range(len(columns)))

    def unsent_children(self, children: Sequence[ChildLink]) -> Sequence[ChildLink]:
        """The children of a result without those that were followed before a process was lost."""
        skipped = min(self.children_to_skip, len(children))
        self.children_to_skip -= skipped
        return children[skipped:] if skipped else children

    def take_unsent(self) -> EntriesRead:
        """The event of these entries, which count as sent from now on."""
        event = EntriesRead(self.url, self.unsent)
        self.unsent = EntryColumns()
        self.entries_sent += event.entry_count
        return event

    @property
    def has_content(self) -> bool:
        """Whether this visit of the crawl has found entries or children."""
        return bool(self.entries_sent or len(self.unsent) or self.children_found)


async def emit_verdict(
    emit: Emit,
    candidate: CrawlCandidate,
    verdict: Verdict,
    reason: ProblemCode | SiteatlasError | None,
    *,
    reading: FetchedDocument | None = None,
) -> None:
    """Emit the verdict on a candidate; children of an index only have one if skipped.

    `reason` is a problem, or the error that the document ended with.
    """
    if candidate.is_child and verdict is not Verdict.SKIPPED:
        return
    reader = reading.reader if reading else None
    code = reason.value if isinstance(reason, ProblemCode) else reason.code if reason else None
    await emit(
        CandidateJudged(
            url=candidate.address.url,
            method=candidate.method,
            verdict=verdict,
            reason=code,
            http_status=reading.http_status if reading else None,
            type=reader.type if reader else reading.type if reading else None,
            final_url=reading.redirected_to if reading else None,
        )
    )


class SiteHosts:
    """Which hosts a scan may crawl: those of the site, and a few others that it names.

    A site may name sitemaps on foreign hosts in robots.txt or in its home page: a few per
    registrable domain, and a limited number per scan. An index may not: its entries are followed
    on hosts of the site, on the host of the index itself and on hosts that the site named. A
    redirect counts like a document. So a site can direct only a limited number of requests at
    third parties.
    """

    def __init__(self, site_host: str) -> None:
        self.site = site_host
        self._bare = bare_host(site_host)
        # `www.co.uk` is a site of its own; what else is below `co.uk` is not part of it.
        self._below = "." + (self._bare if is_registrable(self._bare) else site_host)
        self._named: set[str] = set()
        self._foreign: Counter[str] = Counter()
        self._foreign_documents = 0

    def name(self, host: str) -> None:
        """Allow a host that the site itself named."""
        self._named.add(host)

    def belongs(self, host: str) -> bool:
        """Whether a host is the site's own, a subdomain of it, or the domain above it."""
        bare = bare_host(host)
        return (
            bare == self._bare
            or (host.endswith(self._below) and "." in self._bare)
            or (self._bare.endswith("." + bare) and is_registrable(bare))
        )

    def follows(self, host: str, parent_host: str) -> bool:
        """Whether the crawl follows an entry of an index to this host."""
        return self.belongs(host) or host == parent_host or host in self._named

    def allow_document(self, host: str, parent_host: str | None) -> bool:
        """Count one document of the crawl on a host; False if a limit of foreign ones is reached.

        What a foreign host lists on itself is not counted.
        """
        if self.belongs(host) or host == parent_host:
            return True
        domain = registrable_domain(host)
        if (
            self._foreign[domain] >= FOREIGN_DOCUMENTS_PER_DOMAIN
            or self._foreign_documents >= FOREIGN_DOCUMENTS_PER_SCAN
        ):
            return False
        self._foreign[domain] += 1
        self._foreign_documents += 1
        return True

    def follow_redirect(self, source: WebAddress, target: WebAddress) -> None:
        """Count a redirect of the crawl like a document; ForeignHostLimit if there are too many."""
        if not self.allow_document(target.host, source.host):
            raise ForeignHostLimit


_match_host = re.compile(r"(https?://(\[[^\]/?#]*\]|[^/?#:\\]*)[^/?#\\]*)", re.IGNORECASE).match


class Placement:
    """Records the misplaced pages of one document in its tally.

    Pages are stored as listed and never fetched. The common case takes one comparison.

    A document that robots.txt names, or a descendant of an index that it names, may list any page
    of its host: `anywhere`.
    """

    def __init__(
        self, document: WebAddress, hosts: SiteHosts, tally: Tally, *, anywhere: bool = False
    ) -> None:
        directory = document.path.partition("?")[0].rpartition("/")[0] + "/"
        self._origin = document.origin + "/"
        self._scope = None if anywhere or directory == "/" else document.origin + directory
        self._hosts = hosts
        self._tally = tally
        self._own_origins: tuple[str, ...] = ()
        self._codes: dict[str, ProblemCode | None] = {}

    def note(self, urls: Sequence[str]) -> None:
        """Record misplaced pages: `off_host`, `private_host` or, outside the directory, `scope`."""
        if not urls:
            return
        if not self._own_origins:
            self._placement_of_url(urls[0])
        if not (self._own_origins and all_begin_with(self._own_origins[0], urls)):
            self._note_hosts(urls)
        if self._scope is not None and not all_begin_with(self._scope, urls):
            self._note_scope(self._scope, urls)

    def _note_hosts(self, urls: Sequence[str]) -> None:
        own = self._own_origins
        for url in [url for url in urls if not url.startswith(own)]:
            code = self._placement_of_url(url)
            if code is not None:
                self._tally.note(code, url=url)

    def _note_scope(self, scope: str, urls: Sequence[str]) -> None:
        for url in urls:
            if url.startswith(self._origin) and not url.startswith(scope):
                self._tally.note(ProblemCode.SCOPE, url=url)

    def _placement_of_url(self, url: str) -> ProblemCode | None:
        match = _match_host(url)
        if match is None:
            return None
        origin, host = match[1], match[2].lower()
        if host not in self._codes:
            if len(self._codes) >= 256:
                self._codes.clear()
            self._codes[host] = self._placement_of_host(host)
        if self._codes[host] is None:
            # The next pages of an own origin need one comparison; a few origins suffice.
            own = origin + "/"
            if len(self._own_origins) < 16 and own not in self._own_origins:
                self._own_origins = (*self._own_origins, own)
        return self._codes[host]

    def _placement_of_host(self, host: str) -> ProblemCode | None:
        """Whether a host is outside the site that is crawled: the code to record, or None."""
        if self._hosts.belongs(host):
            return None
        return ProblemCode.PRIVATE_HOST if is_private_host(host) else ProblemCode.OFF_HOST
