"""The state of one document while it is read, and the events of its start and its end.

Shared by documents that are fetched (`visit.py`) and local files (`local_file.py`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from siteatlas.errors import SiteatlasError
from siteatlas.scanner.events import (
    DiscoveryMethod,
    DocumentClosed,
    DocumentOpened,
    DocumentOutcome,
    SitemapType,
    UnchangedBy,
    Validators,
)
from siteatlas.scanner.reading.document import DocumentReader

if TYPE_CHECKING:
    from siteatlas.scanner.crawl.reader_messages import ReadSummary


@dataclass(slots=True, kw_only=True)
class DocumentReading:
    """One document; there is no `reader` before its body arrives, and none if it is unchanged.

    Of one that a reader process reads, it is the summary.

    `content_hash`, `type` and `wire_bytes` are of an unchanged document; otherwise the reader has
    them.
    """

    url: str
    requested_url: str
    method: DiscoveryMethod
    parent_url: str | None = None
    depth: int = 0
    listed_lastmod: datetime | None = None
    http_status: int | None = None
    reader: DocumentReader | ReadSummary | None = None
    entries_sent: int = 0
    validators: Validators = Validators()
    content_hash: str | None = None
    type: SitemapType | None = None
    wire_bytes: int = 0
    unchanged_by: UnchangedBy | None = None
    proves_removals: bool = True
    validators_lied: bool = False
    is_open: bool = False
    started: float = field(default_factory=time.monotonic)

    def opened(self) -> DocumentOpened | None:
        """The event to emit once the type is known; None before, and afterwards."""
        if self.is_open or self.reader is None or self.reader.type is None:
            return None
        self.is_open = True
        return DocumentOpened(
            url=self.url,
            requested_url=self.requested_url,
            method=self.method,
            type=self.reader.type,
            parent_url=self.parent_url,
            depth=self.depth,
            http_status=self.http_status,
            listed_lastmod=self.listed_lastmod,
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
            method=self.method,
            type=reader.type if reader else self.type,
            parent_url=self.parent_url,
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
