"""Reads what is exported batch by batch, each in a short transaction, and encodes it.

No transaction and no connection is held while a batch is encoded or sent, however slow the reader
is. A batch is encoded in a thread, so that other requests are answered meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from siteatlas.export.columns import SCHEMAS, Exported
from siteatlas.export.encoding import ExportFormat, ExportMetadata, create_encoder
from siteatlas.insights.changes import read_changes
from siteatlas.insights.feed_positions import FeedHeadView, read_head, start_position
from siteatlas.insights.feed_windows import FeedFilter
from siteatlas.insights.pages import MAX_LIMIT
from siteatlas.insights.url_filters import UrlFilter
from siteatlas.insights.urls import read_urls, source_of_urls
from siteatlas.storage.session import get_session, get_snapshot_session

ROWS_PER_BATCH = 2_000


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What to export: the URLs of a site or of all, or their changes after a number."""

    what: Exported
    format: ExportFormat
    domain_id: UUID | None
    urls: UrlFilter = UrlFilter()
    kinds: frozenset[str] | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Export:
    """An export that was begun: its metadata, and its bytes."""

    metadata: ExportMetadata
    content: AsyncIterator[bytes]


async def begin_export(request: ExportRequest) -> Export:
    """Begin an export. What can be refused is refused here, before the first byte."""
    async with get_session() as session, session.begin():
        head = await read_head(session)
    if request.what is Exported.CHANGES:
        start_position(head, after=request.after, cursor=None)
    schema = SCHEMAS[request.what]
    metadata = ExportMetadata(schema.label, head.seq, str(head.feed_id))
    encoder = create_encoder(request.format, schema, metadata)

    async def content() -> AsyncIterator[bytes]:
        """The bytes of the export; they end before its end if reading fails."""
        yield encoder.start()
        async for views in _batches(request, head):
            if made := await asyncio.to_thread(encoder.rows, views):
                yield made
        yield await asyncio.to_thread(encoder.end)

    return Export(metadata, content())


def _batches(request: ExportRequest, head: FeedHeadView) -> AsyncIterator[Sequence[Any]]:
    """The rows of an export, batch by batch."""
    if request.what is Exported.URLS:
        return _url_batches(request)
    return _change_batches(request, head)


async def _url_batches(request: ExportRequest) -> AsyncIterator[Sequence[Any]]:
    """The URLs of an export, in the order of their list."""
    source, place = source_of_urls(request.domain_id, request.urls), None
    while True:
        async with get_session() as session, session.begin():
            found = await read_urls(session, source, place, ROWS_PER_BATCH)
        yield found.views
        place = found.place
        if place is None:
            return


async def _change_batches(
    request: ExportRequest, first: FeedHeadView
) -> AsyncIterator[Sequence[Any]]:
    """The changes of an export up to the number at its start, in the order of the feed.

    Raises CursorExpired if changes that are still to be read have been removed meanwhile.
    """
    wanted = FeedFilter(request.domain_id, request.kinds)
    after, cursor = request.after, None
    while True:
        async with get_snapshot_session() as session:
            head = await read_head(session)
            start = start_position(head, after=after, cursor=cursor)
            page = await read_changes(
                session, wanted, replace(head, seq=first.seq), start, MAX_LIMIT
            )
        yield page.items
        after, cursor = None, page.next_cursor
        if page.at_head:
            return
