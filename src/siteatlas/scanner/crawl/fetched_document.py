"""The state of one document while a visit fetches and reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from siteatlas.scanner.crawl.candidates import CrawlCandidate
from siteatlas.scanner.crawl.document_reading import DocumentReading
from siteatlas.scanner.crawl.placement import Placement
from siteatlas.scanner.events import ChildLink, EntriesRead, EntryColumns, RecognizedEntries
from siteatlas.scanner.reading.duplicates import DuplicateUrls


@dataclass(slots=True, kw_only=True)
class FetchedDocument(DocumentReading):
    """The state of one visit; `claimed_url` is the target of a redirect that it reads.

    `children_left_out`: the filter of the scan left out some of what an index lists.
    `entries_to_skip` and `children_to_skip` were sent before the reader process was lost.
    """

    candidate: CrawlCandidate
    placement: Placement | None = None
    duplicates: DuplicateUrls | None = None
    unsent: EntryColumns = field(default_factory=EntryColumns)
    unsent_recognized: RecognizedEntries = field(default_factory=RecognizedEntries)
    children_found: int = 0
    children_left_out: bool = False
    claimed_url: str | None = None
    reader_lost: bool = False
    entries_to_skip: int = 0
    children_to_skip: int = 0

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
        event = EntriesRead(self.url, self.unsent, self.unsent_recognized)
        self.unsent, self.unsent_recognized = EntryColumns(), RecognizedEntries()
        self.entries_sent += event.entry_count
        return event

    @property
    def has_content(self) -> bool:
        """Whether this visit of the crawl has found entries or children."""
        return bool(self.entries_sent or self.unsent_count or self.children_found)
