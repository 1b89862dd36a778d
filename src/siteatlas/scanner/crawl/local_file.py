"""Reads a sitemap from a local file and yields the same events as a scan.

The children of an index are reported, not fetched.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from io import FileIO
from pathlib import Path

from siteatlas.aio import DaemonWorker
from siteatlas.errors import (
    Blocked,
    HtmlInstead,
    InputError,
    ScanError,
    UrlLimitReached,
)
from siteatlas.net.address import WebAddress
from siteatlas.scanner.crawl.document import CrawlCandidate, FetchedDocument
from siteatlas.scanner.crawl.frontier import UrlLimit
from siteatlas.scanner.events import (
    CandidateJudged,
    ChildLink,
    ChildrenFound,
    DiscoveryMethod,
    DocumentClosed,
    DocumentOutcome,
    ScanEvent,
    Verdict,
)
from siteatlas.scanner.options import ScanOptions
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.document import DocumentReader, DuplicateUrls
from siteatlas.scanner.reading.entries import ReadResult


async def read_local_file(
    path: Path, options: ScanOptions = ScanOptions(), reader: DocumentReader | None = None
) -> AsyncGenerator[ScanEvent, None]:
    """The events of one file; InputError if it cannot be opened, ScanError if it has no content."""
    reading = _FileReading(str(path), options, reader or DocumentReader())
    thread = DaemonWorker("file")
    # Without a buffer, closing does not wait for a read that is still under way in the thread.
    with await thread.submit(lambda: _open_file(path)) as file:
        try:
            while chunk := await thread.submit(lambda: file.read(256 * 1024)):
                for event in reading.process(reading.reader.feed(chunk)):
                    yield event
            for event in reading.process(reading.reader.close()):
                yield event
        except OSError as error:
            raise _unreadable_file(error) from error
        except ScanError as error:
            fault = _file_error(error)
            yield reading.closed(fault)
            if not reading.has_content:
                raise fault from error
        else:
            yield reading.closed()


def _open_file(path: Path) -> FileIO:
    try:
        return path.open("rb", buffering=0)
    except OSError as error:
        raise _unreadable_file(error) from error


def _file_error(error: ScanError) -> ScanError:
    if isinstance(error, (HtmlInstead, Blocked)):
        return HtmlInstead("The file is a web page, not a sitemap.")
    return error


def _unreadable_file(error: OSError) -> InputError:
    return InputError(f"The file cannot be read: {error.strerror}.")


class _FileReading:
    def __init__(self, name: str, options: ScanOptions, reader: DocumentReader) -> None:
        self.reader = reader
        candidate = CrawlCandidate(WebAddress(name, "file", "", 0, name), DiscoveryMethod.MANUAL)
        self._document = FetchedDocument(candidate=candidate, url=name, reader=self.reader)
        if options.find_duplicates:
            self._document.duplicates = DuplicateUrls(self.reader.tally)
        self._limit = UrlLimit(options.max_urls)

    @property
    def has_content(self) -> bool:
        return self._document.has_content

    def process(self, results: Iterable[ReadResult]) -> Iterator[ScanEvent]:
        """The events of these results; raises UrlLimitReached after the last entry allowed."""
        document = self._document
        for result in results:
            opened = document.opened()
            if opened is not None:
                yield opened
            yield from self._report_children(result.children)
            document.unsent = result.columns.head(self._limit.admit(len(result.columns)))
            is_cut = len(document.unsent) < len(result.columns)
            if document.unsent.urls:
                if document.duplicates is not None:
                    document.duplicates.note_repeated(document.unsent.urls)
                yield document.take_unsent()
            if is_cut:
                raise UrlLimitReached

    def _report_children(self, children: list[ChildLink]) -> Iterator[ScanEvent]:
        self._document.children_found += len(children)
        if children:
            yield ChildrenFound(self._document.url, tuple(children))
        for child in children:
            yield CandidateJudged(
                child.url,
                DiscoveryMethod.SITEMAP_INDEX,
                Verdict.SKIPPED,
                ProblemCode.NOT_FETCHED.value,
            )

    def closed(self, error: ScanError | None = None) -> DocumentClosed:
        if error is None:
            return self._document.closed(DocumentOutcome.COMPLETE)
        outcome = DocumentOutcome.CUT if self.has_content else DocumentOutcome.UNREAD
        return self._document.closed(outcome, error)
