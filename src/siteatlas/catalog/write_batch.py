"""A write batch: rows collected while a site is read, written in one transaction.

URLs are written first, then the documents that list them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from siteatlas.catalog.change_feed import add_document_events
from siteatlas.catalog.findings import Judged, record_document_findings
from siteatlas.catalog.problems import FoundProblem, record_problems
from siteatlas.catalog.sitemaps import (
    DONE,
    close_sitemap_scans,
    insert_read_sitemaps,
    insert_sitemaps,
    link_sitemaps,
    mark_opened,
    mark_pending,
    note_reading,
    record_candidates,
    replace_links,
    update_sitemaps,
)
from siteatlas.catalog.url_changes import change_urls, expire_urls, mark_missing, record_added
from siteatlas.catalog.url_copy import UrlRows
from siteatlas.catalog.urls import insert_urls
from siteatlas.storage.models import FeedEventKind, SitemapScanState


@dataclass(slots=True)
class WriteBatch:
    """Rows not yet written. `closed` are the documents whose reading ended.

    `opened` are those being read, with the HTTP status of the response. `counted_size` is the part
    of the size that is counted in the memory budget of the process. `read_completely` are stored
    documents read to the end: their problems that were not found again are resolved. `judged`
    has the findings of the closed documents.

    `reported` are the documents whose changes are recorded, with the time of their last complete
    read; others are read silently. `missing` are URLs that a complete read did not show, `expired`
    those that are no longer listed at once. `not_modified` and `same_content`: the unchanged
    documents. `children` are all that completely read indexes list. `distrusted` are documents
    whose dates have turned out to mean nothing.
    """

    new_sitemaps: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    changed_sitemaps: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    links: set[tuple[UUID, UUID]] = field(default_factory=set)
    pending: list[UUID] = field(default_factory=list)
    opened: dict[UUID, int | None] = field(default_factory=dict)
    closed: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    problems: list[FoundProblem] = field(default_factory=list)
    read_completely: set[UUID] = field(default_factory=set)
    judged: dict[UUID, Judged] = field(default_factory=dict)
    candidates: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    origin: str | None = None
    new_urls: UrlRows = field(default_factory=UrlRows)
    changed_urls: UrlRows = field(default_factory=UrlRows)
    repeated_urls: UrlRows = field(default_factory=UrlRows)
    missing: dict[UUID, Sequence[int]] = field(default_factory=dict)
    expired: dict[UUID, Sequence[int]] = field(default_factory=dict)
    reported: dict[UUID, datetime | None] = field(default_factory=dict)
    not_modified: set[UUID] = field(default_factory=set)
    same_content: set[UUID] = field(default_factory=set)
    children: dict[UUID, list[UUID]] = field(default_factory=dict)
    distrusted: list[UUID] = field(default_factory=list)
    counted_size: int = 0

    @property
    def url_row_count(self) -> int:
        """The number of URLs not yet written."""
        return len(self.new_urls) + len(self.changed_urls) + len(self.repeated_urls)

    @property
    def document_rows(self) -> int:
        """The number of document and candidate rows not yet written."""
        return len(self.new_sitemaps) + len(self.changed_sitemaps) + len(self.candidates)

    @property
    def size(self) -> int:
        """The approximate memory of the rows, in bytes."""
        # A dict with its id, its URL, its link and its place on the frontier.
        documents = self.document_rows * 1_000
        urls = self.new_urls.size + self.changed_urls.size + self.repeated_urls.size
        return urls + documents

    @property
    def has_rows_of_read_documents(self) -> bool:
        """Whether the rows to write include a document that was read in full or is unchanged."""
        return any(row["state"] in DONE for row in self.closed.values())

    def new_and_read(self) -> dict[UUID, dict[str, Any]]:
        """The rows of new documents whose reading ended: they are written once."""
        return {
            key: {**row, "is_complete": self.closed[key]["state"] == SitemapScanState.COMPLETE}
            for key, row in self.new_sitemaps.items()
            if key in self.closed and not _is_unchanged_row(self.closed[key])
        }

    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (
            self.url_row_count
            or self.new_sitemaps
            or self.changed_sitemaps
            or self.links
            or self.pending
            or self.closed
            or self.candidates
            or self.origin
        )


async def flush_batch(session: AsyncSession, batch: WriteBatch, *, scan_id: int) -> None:
    """Write URLs first, then the documents that list them.

    The origin is left to the caller, which may update other columns of the domain.
    """
    await _flush_urls(session, batch, scan_id)
    read = batch.new_and_read()
    await insert_sitemaps(session, _with_id(batch.new_sitemaps, but=read))
    await insert_read_sitemaps(session, _with_id(read))
    # Before stored documents get the version of the rules and the error of this read.
    await record_document_findings(session, scan_id, batch.judged.values())
    await update_sitemaps(session, _with_id(batch.changed_sitemaps))
    counts = await _note_reading(session, batch, sorted(batch.closed.keys() - read.keys()))
    await link_sitemaps(session, sorted(batch.links))
    await replace_links(session, batch.children)
    await mark_pending(session, scan_id, [i for i in batch.pending if i not in batch.closed])
    await mark_opened(session, scan_id, batch.opened)
    await close_sitemap_scans(
        session,
        scan_id,
        [_with_shown_url_count(row, counts.get(key)) for key, row in batch.closed.items()],
    )
    await record_problems(session, scan_id, batch.problems, batch.read_completely)
    await record_candidates(session, list(batch.candidates.values()))
    await add_document_events(session, scan_id, FeedEventKind.LASTMOD_DISTRUSTED, batch.distrusted)


async def _flush_urls(session: AsyncSession, batch: WriteBatch, scan_id: int) -> None:
    reported = batch.reported
    await insert_urls(session, batch.new_urls)
    await record_added(session, batch.new_urls, reported, scan_id=scan_id)
    await change_urls(session, batch.changed_urls, reported, scan_id=scan_id)
    await change_urls(session, batch.repeated_urls, reported, scan_id=scan_id, only_later=True)
    await expire_urls(session, batch.expired, reported, scan_id=scan_id)
    await mark_missing(session, batch.missing, scan_id=scan_id)


async def _note_reading(
    session: AsyncSession, batch: WriteBatch, ids: list[UUID]
) -> dict[UUID, int]:
    if not ids:
        return {}
    return await note_reading(
        session,
        ids,
        complete=[i for i in ids if batch.closed[i]["state"] == SitemapScanState.COMPLETE],
        not_modified=sorted(batch.not_modified),
        same_content=sorted(batch.same_content),
    )


def _with_shown_url_count(row: dict[str, Any], shown: int | None) -> dict[str, Any]:
    """The `sitemap_scans` row to write; an unchanged document shows as many URLs as before."""
    return row | {"url_count": shown or 0} if _is_unchanged_row(row) else row


def _is_unchanged_row(row: Mapping[str, Any]) -> bool:
    return bool(row["state"] == SitemapScanState.UNCHANGED)


def _with_id(
    rows: Mapping[UUID, dict[str, Any]], *, but: Container[UUID] = ()
) -> list[dict[str, Any]]:
    return [{"id": key, **row} for key, row in sorted(rows.items()) if key not in but]
