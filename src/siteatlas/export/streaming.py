"""Reads what is exported batch by batch, each in a short transaction, and encodes it.

No transaction and no connection is held while a batch is encoded or sent, however slow the reader
is. CSV and JSON Lines are encoded on the event loop in short time slices, between which requests
are answered: a thread would take the interpreter from the loop for 5 ms each time that the loop
waits.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, assert_never
from uuid import UUID

from siteatlas.catalog.change_feed import (
    ChangeView,
    FeedFilter,
    FeedHeadView,
    read_changes,
    read_head,
    start_position,
)
from siteatlas.catalog.paging import MAX_LIMIT
from siteatlas.catalog.url_lists import (
    PointInTime,
    UrlFilter,
    UrlSource,
    find_past_number,
    read_urls,
    require_past_number,
    source_of_urls,
)
from siteatlas.errors import InputError
from siteatlas.export.encoding import (
    SCHEMAS,
    SHORT_CHANGES,
    ChangeColumns,
    CsvEncoder,
    Exported,
    ExportFormat,
    ExportMetadata,
    ExportSchema,
    JsonLinesEncoder,
    encoded,
)
from siteatlas.export.parquet import parquet_content, require_parquet
from siteatlas.storage.session import (
    AsyncSession,
    expensive_turn,
    get_session,
)

# Changes that an export for people holds to sort them.
MAX_SORTED = 5_000


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What to export: the URLs of a site, of those with a tag or of all, or their changes.

    The URLs of a site can also be exported as they were `at` a time or a number. Short columns are
    for people: the changes of each scan are sorted by group and URL.
    """

    what: Exported
    format: ExportFormat
    domain_id: UUID | None
    urls: UrlFilter = UrlFilter()
    kinds: frozenset[str] | None = None
    after: int | None = None
    tag: str | None = None
    at: PointInTime | None = None
    until: int | None = None
    columns: ChangeColumns = ChangeColumns.ALL

    @property
    def schema(self) -> ExportSchema:
        """Its columns."""
        is_short = self.what is Exported.CHANGES and self.columns is ChangeColumns.SHORT
        return SHORT_CHANGES if is_short else SCHEMAS[self.what]


@dataclass(slots=True)
class Export:
    """An export that was begun: its metadata, its bytes, and how many rows were read for them."""

    metadata: ExportMetadata
    content: AsyncGenerator[bytes, None] = field(init=False)
    row_count: int = 0

    async def counted(
        self, batches: AsyncIterator[Sequence[Any]]
    ) -> AsyncGenerator[Sequence[Any], None]:
        """The batches; their rows are counted as they are read."""
        async for batch in batches:
            self.row_count += len(batch)
            yield batch


async def begin_export(session: AsyncSession, request: ExportRequest) -> Export:
    """Begin an export. What can be refused is refused here, before the first byte.

    The session is used only here; each batch of the content is read in a session of its own.
    """
    head = await read_head(session)
    past = await _past_number(session, request)
    if request.what is Exported.CHANGES:
        start = start_position(head, after=request.after, cursor=None)
        if request.until is not None:
            head = replace(head, seq=max(start.done, min(head.seq, request.until)))
    schema = request.schema
    as_of_seq = head.seq if past is None else past
    metadata = ExportMetadata(schema.label, as_of_seq, str(head.feed_id))
    export = Export(metadata)
    batches = export.counted(_batches(request, head, past))
    export.content = _content(request.format, schema, metadata, batches)
    return export


def _content(
    format: ExportFormat,
    schema: ExportSchema,
    metadata: ExportMetadata,
    batches: AsyncIterator[Sequence[Any]],
) -> AsyncGenerator[bytes, None]:
    match format:
        case ExportFormat.CSV:
            return encoded(CsvEncoder(schema.flat), batches)
        case ExportFormat.JSONL:
            return encoded(JsonLinesEncoder(metadata), batches)
        case ExportFormat.PARQUET:
            require_parquet()
            return parquet_content(schema, metadata, batches)
        case _:
            assert_never(format)


async def _past_number(session: AsyncSession, request: ExportRequest) -> int | None:
    if request.at is None:
        return None
    if request.domain_id is None:
        raise InputError("A past time or number needs a site.")
    return await find_past_number(session, request.domain_id, request.at)


def _batches(
    request: ExportRequest, head: FeedHeadView, past: int | None
) -> AsyncIterator[Sequence[Any]]:
    if request.what is Exported.URLS:
        wanted = request.urls
        return _url_batches(source_of_urls(request.domain_id, wanted, request.tag, at_seq=past))
    batches = _change_batches(request, head)
    return _sorted_by_scan(batches) if request.schema is SHORT_CHANGES else batches


async def _sorted_by_scan(
    batches: AsyncIterator[Sequence[ChangeView]],
) -> AsyncGenerator[Sequence[ChangeView], None]:
    """The changes of each scan in the order of lists for people; large scans in several parts."""
    held: list[ChangeView] = []
    async for batch in batches:
        held += batch
        # The last scan may go on in the next batch.
        last = held[-1].seq if held else 0
        ready = [change for change in held if change.seq < last or len(held) >= MAX_SORTED]
        held = held[len(ready) :]
        yield sorted(ready, key=attrgetter("place"))
    yield sorted(held, key=attrgetter("place"))


async def _url_batches(source: UrlSource) -> AsyncIterator[Sequence[Any]]:
    """The URLs of an export, in the order of their list.

    Raises PastStateUnavailable if changes that the state needs have been removed meanwhile.
    """
    place = None
    while True:
        async with expensive_turn(), get_session() as session, session.begin():
            if source.at_seq is not None:
                await require_past_number(session, source.at_seq)
            found = await read_urls(session, source, place, 2_000)
        yield found.views
        place = found.place
        # The statement of each batch consists of hundreds of objects in reference cycles, which
        # would wait long for the garbage collector of this process.
        gc.collect(1)
        if place is None:
            return


async def _change_batches(
    request: ExportRequest, first: FeedHeadView
) -> AsyncIterator[Sequence[Any]]:
    """The changes of an export up to the number at its start, in the order of the feed.

    Raises CursorExpired if changes that are still to be read have been removed meanwhile.
    """
    wanted = FeedFilter(request.domain_id, request.kinds, request.tag)
    after, cursor = request.after, None
    while True:
        async with get_session(snapshot=True) as session:
            head = await read_head(session)
            start = start_position(head, after=after, cursor=cursor)
            page = await read_changes(
                session, wanted, replace(head, seq=first.seq), start, MAX_LIMIT
            )
        yield page.items
        after, cursor = None, page.next_cursor
        if page.at_head:
            return
