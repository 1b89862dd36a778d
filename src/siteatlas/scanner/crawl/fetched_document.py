"""The state of one document while a visit fetches and reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

from siteatlas.scanner.crawl.candidates import CrawlCandidate
from siteatlas.scanner.crawl.document_reading import DocumentReading
from siteatlas.scanner.crawl.placement import Placement
from siteatlas.scanner.events import EntriesRead, EntryColumns, RecognizedEntries
from siteatlas.scanner.reading.duplicates import DuplicateUrls


@dataclass(slots=True, kw_only=True)
class FetchedDocument(DocumentReading):
    """The state of one visit; `claimed_url` is the target of a redirect that it reads.

    `children_left_out`: the filter of the scan left out some of what an index lists.
    """

    candidate: CrawlCandidate
    placement: Placement | None = None
    duplicates: DuplicateUrls | None = None
    unsent: EntryColumns = field(default_factory=EntryColumns)
    unsent_recognized: RecognizedEntries = field(default_factory=RecognizedEntries)
    children_found: int = 0
    children_left_out: bool = False
    claimed_url: str | None = None

    @classmethod
    def of(cls, candidate: CrawlCandidate) -> FetchedDocument:
        """The state before the first request."""
        return cls(
            candidate=candidate,
            url=candidate.address.url,
            requested_url=candidate.address.url,
            method=candidate.method,
            parent_url=candidate.parent_url,
            depth=candidate.depth,
            listed_lastmod=candidate.listed_lastmod,
        )

    @property
    def redirected_to(self) -> str | None:
        """The address of the document if the request for it was redirected."""
        return self.url if self.url != self.requested_url else None

    @property
    def unsent_count(self) -> int:
        """How many entries were found and not sent yet."""
        return len(self.unsent) + len(self.unsent_recognized)

    def take_unsent(self) -> EntriesRead:
        """The event of these entries, which count as sent from now on."""
        event = EntriesRead(self.url, self.unsent, self.unsent_recognized)
        self.unsent, self.unsent_recognized = EntryColumns(), RecognizedEntries()
        self.entries_sent += event.entry_count
        return event

    @property
    def has_content(self) -> bool:
        """Whether this visit of the crawl has found entries or children."""
        return bool(self.entries_sent or self.unsent_count or self.children_found)
