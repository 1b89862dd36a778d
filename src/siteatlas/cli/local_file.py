"""A sitemap in a local file, read as a stream of the same events that a scan yields.

The children of an index are listed as its entries; nothing is fetched.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from io import FileIO
from pathlib import Path

from siteatlas.cli.side_thread import SideThread
from siteatlas.errors import InputError, ScanError
from siteatlas.scanner.document import DocumentReader
from siteatlas.scanner.events import (
    ChildLink,
    ChildrenFound,
    DiscoveryMethod,
    DocumentClosed,
    DocumentOpened,
    DocumentOutcome,
    EntriesRead,
    EntryColumns,
    ScanEvent,
    SitemapType,
)
from siteatlas.scanner.tally import Harvest

READ_BYTES = 256 * 1024
FILE_ENDINGS = (".xml", ".gz", ".txt", ".rss", ".atom")
PATH_STARTS = ("./", "../", "/", "~/")


def local_path(text: str) -> Path | None:
    """The file that is meant; None when the text names a site.

    A path is a file. A bare name is one only if it ends like a sitemap and is there, so that a
    file called `example.com` does not hide the site.
    """
    if text.startswith(PATH_STARTS):
        return Path(text).expanduser()
    path = Path(text)
    return path if text.lower().endswith(FILE_ENDINGS) and path.is_file() else None


async def read_local_file(path: Path) -> AsyncGenerator[ScanEvent, None]:
    """The events of one file; raises ScanError when it gives nothing, InputError without it."""
    reading = _Reading(str(path))
    thread = SideThread("file")
    # Without a buffer, closing does not wait for a read that is still under way in the thread.
    with await thread.submit(lambda: _opened(path)) as file:
        try:
            while chunk := await thread.submit(lambda: file.read(READ_BYTES)):
                for event in reading.take(reading.reader.feed(chunk)):
                    yield event
            for event in reading.take(reading.reader.close()):
                yield event
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}.") from error
        except ScanError as error:
            yield reading.closed(error)
            if not reading.entries:
                raise
        else:
            yield reading.closed()


def _opened(path: Path) -> FileIO:
    try:
        return path.open("rb", buffering=0)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error


class _Reading:
    """The state of one file while it is read."""

    def __init__(self, name: str) -> None:
        self.reader = DocumentReader()
        self.entries = 0
        self._name = name
        self._opened = False
        self._started = time.monotonic()

    def take(self, harvests: Iterable[Harvest]) -> Iterator[ScanEvent]:
        """The events of what was read."""
        for harvest in harvests:
            if not self._opened and self.reader.type is not None:
                self._opened = True
                yield self._open(self.reader.type)
            if harvest.children:
                yield ChildrenFound(self._name, tuple(harvest.children))
            columns = _with_children(harvest.columns, harvest.children)
            if columns.urls:
                self.entries += len(columns)
                yield EntriesRead(self._name, columns)

    def closed(self, error: ScanError | None = None) -> DocumentClosed:
        """The end of the file, good or bad."""
        broken = DocumentOutcome.CUT if self.entries else DocumentOutcome.UNREAD
        return DocumentClosed(
            url=self._name,
            requested_url=self._name,
            outcome=broken if error else DocumentOutcome.COMPLETE,
            method=DiscoveryMethod.MANUAL,
            type=self.reader.type,
            error_code=error.code if error else None,
            error=error.message if error else None,
            entry_count=self.entries,
            skipped_count=self.reader.tally.skipped,
            wire_bytes=self.reader.wire_bytes,
            decoded_bytes=self.reader.decoded_bytes,
            seconds=time.monotonic() - self._started,
            problems=dict(self.reader.tally.problems),
        )

    def _open(self, kind: SitemapType) -> DocumentOpened:
        return DocumentOpened(
            url=self._name,
            requested_url=self._name,
            method=DiscoveryMethod.MANUAL,
            type=kind,
            parent_url=None,
            depth=0,
            http_status=None,
        )


def _with_children(columns: EntryColumns, children: list[ChildLink]) -> EntryColumns:
    if not children:
        return columns
    nothing: list[None] = [None] * len(children)
    return EntryColumns(
        [*columns.urls, *(child.url for child in children)],
        [*columns.lastmods, *(child.lastmod for child in children)],
        [*columns.changefreqs, *nothing],
        [*columns.priorities, *nothing],
        [*columns.extras, *nothing],
    )
