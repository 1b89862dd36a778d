"""Where a scan writes its data: stdout, or a file that is created when it is complete.

Provides backpressure without blocking: a stalled pipe blocks only the writing thread, so that
network timeouts can still tell a slow site from a slow reader.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import stat
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import repeat
from pathlib import Path
from typing import Any, Protocol

import orjson

from siteatlas.aio import DaemonWorker
from siteatlas.cli.terminal.output import (
    JSON_OPTIONS,
    WIDE,
    Column,
    ColumnKind,
    cell_text,
    counted,
    json_bytes,
    output_line,
    plain_table,
    terminal_safe_json,
    url_lines,
)
from siteatlas.errors import InputError, OutputClosed, OutputFailed
from siteatlas.scanner.events import EncodedEntries, EntriesRead, EntryColumns
from siteatlas.scanner.options import any_of_patterns
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.entries import listed_texts
from siteatlas.scanner.report import CandidateSeen, ScanReport, SitemapSeen
from siteatlas.text import csv_cell, is_plain_csv, printable

MIDDLE, LAST = ("├── ", "│   "), ("└── ", "    ")


def tree_text(report: ScanReport) -> bytes:
    """The output of `siteatlas scan --format tree`: one line per document, nothing shortened."""
    lines = [printable(f"{report.site}  {counted(report.url_count, 'URL')}")]
    roots, children = families(report.sitemaps)
    lines.extend(_branches(roots, children, ""))
    unfetched = unfetched_children(report)
    for position, child in enumerate(unfetched, start=1):
        fork, _ = LAST if position == len(unfetched) else MIDDLE
        lines.append(printable(f"    {fork}{child.url}  not fetched"))
    return ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")


def unfetched_children(report: ScanReport) -> list[CandidateSeen]:
    """The sitemaps listed in a local index, which a scan does not fetch."""
    return [
        candidate for candidate in report.candidates if candidate.reason == ProblemCode.NOT_FETCHED
    ]


def families(
    sitemaps: Sequence[SitemapSeen],
) -> tuple[list[SitemapSeen], dict[str, list[SitemapSeen]]]:
    """The documents without a parent in the list, and the children of the others."""
    urls = {sitemap.url for sitemap in sitemaps}
    roots: list[SitemapSeen] = []
    children: dict[str, list[SitemapSeen]] = defaultdict(list)
    for sitemap in sitemaps:
        parent = sitemap.parent
        if parent is not None and parent in urls and parent != sitemap.url:
            children[parent].append(sitemap)
        else:
            roots.append(sitemap)
    return roots, children


def describe(sitemap: SitemapSeen) -> str:
    """One document in a line: its URL, what was read from it, and what went wrong."""
    words = [counted(sitemap.url_count, "URL") if sitemap.type != "index" else "index"]
    if sitemap.error_code:
        words.append(f"{sitemap.outcome}: {sitemap.error_code}")
    return printable(f"{sitemap.url}  {', '.join(words)}")


def _branches(
    sitemaps: Sequence[SitemapSeen], children: dict[str, list[SitemapSeen]], indent: str
) -> Iterator[str]:
    """The lines of `siteatlas scan --format tree` for these sitemaps and their children."""
    for position, sitemap in enumerate(sitemaps, start=1):
        fork, below = LAST if position == len(sitemaps) else MIDDLE
        yield indent + fork + describe(sitemap)
        # Taken out, so that indexes that name each other cannot loop forever.
        yield from _branches(children.pop(sitemap.url, []), children, indent + below)


@dataclass(slots=True)
class EntryFilter:
    """Keeps entries changed on or after `since` whose URLs fit; counts what it leaves out."""

    since: datetime | None = None
    include: re.Pattern[str] | None = None
    exclude: re.Pattern[str] | None = None
    kept: int = 0
    left_out: int = 0
    undated: int = 0

    @classmethod
    def of(
        cls, since: datetime | None, include: Sequence[str], exclude: Sequence[str]
    ) -> EntryFilter:
        """The filter that these patterns describe: `*`, `?` and `[…]` over the whole URL."""
        return cls(since, any_of_patterns(include), any_of_patterns(exclude))

    @property
    def keeps_all(self) -> bool:
        """Whether there is nothing to leave out."""
        return self.since is None and self.include is None and self.exclude is None

    def apply(self, columns: EntryColumns) -> EntryColumns:
        """The entries that are wanted, in their order."""
        if self.keeps_all:
            return columns
        wanted = [self._passes_since(lastmod) for lastmod in columns.lastmods]
        if self.include is not None:
            fits = self.include.match
            pairs = zip(wanted, columns.urls, strict=True)
            wanted = [want and fits(url) is not None for want, url in pairs]
        if self.exclude is not None:
            hits = self.exclude.match
            pairs = zip(wanted, columns.urls, strict=True)
            wanted = [want and hits(url) is None for want, url in pairs]
        kept = wanted.count(True)
        self.kept += kept
        self.left_out += len(wanted) - kept
        return columns.where(wanted)

    def count_encoded(self, encoded: EncodedEntries) -> None:
        """Count entries that a reader process has filtered in the same way."""
        self.kept += encoded.kept
        self.left_out += encoded.found - encoded.kept
        self.undated += encoded.undated

    def _passes_since(self, lastmod: datetime | None) -> bool:
        """Whether `siteatlas scan --since` keeps an entry; counts entries without a lastmod."""
        if self.since is None:
            return True
        if lastmod is None:
            self.undated += 1
            return False
        return lastmod >= self.since


FIELDS = ("url", "lastmod", "changefreq", "priority", "sitemap", "extras", "lastmod_text")
SITE = "site"
LINE_OPTIONS = JSON_OPTIONS | orjson.OPT_APPEND_NEWLINE
ESCAPED_IN_JSON = re.compile(r"[\"\\\x00-\x1f\ud800-\udfff]")
UNESCAPED_IN_JSON = bytes(set(range(0x20, 0x7F)) - set(b'"\\'))
PLAIN_DATES = re.compile(r"(?:[0-9][0-9T:.Z-]*,)*")

# Receives the name of the site and some of its entries.
EntryEncoder = Callable[[str, EntriesRead], bytes]
# A column of texts, or one text that is the same for every entry.
Part = str | Sequence[str]


def csv_head(*, with_site: bool = False) -> bytes:
    """The header line of `siteatlas scan --format csv`."""
    names = (SITE, *FIELDS) if with_site else FIELDS
    return (",".join(f'"{name}"' for name in names) + "\r\n").encode()


def encode_nothing(_site: str, _event: EntriesRead) -> bytes:
    """For formats that print their result at the end."""
    return b""


def encode_urls(_site: str, event: EntriesRead) -> bytes:
    """Encode scanned entries as one URL per line."""
    return url_lines(event.columns.urls)


def encode_objects(_site: str, event: EntriesRead) -> bytes:
    """Encode scanned entries as one JSON object per line."""
    return object_lines(event.url, event.columns)


def encode_objects_of_site(site: str, event: EntriesRead) -> bytes:
    """Encode scanned entries as one JSON object per line, beginning with the site."""
    return object_lines(event.url, event.columns, site=site)


def encode_csv(_site: str, event: EntriesRead) -> bytes:
    """Encode scanned entries as CSV rows."""
    return csv_lines(event.url, event.columns)


def encode_csv_of_site(site: str, event: EntriesRead) -> bytes:
    """Encode scanned entries as CSV rows, beginning with the site."""
    return csv_lines(event.url, event.columns, site=site)


def object_lines(sitemap: str, columns: EntryColumns, *, site: str | None = None) -> bytes:
    """Entries as JSON lines, with the field names of the API; harmless on a terminal."""
    if not columns.urls:
        return b""
    if not _is_plain_json(columns.urls):
        of_site = {} if site is None else {SITE: site}
        rows = _rows_encoders(sitemap, columns)
        return terminal_safe_json(b"".join(_object_line(row, of_site) for row in rows))
    parts: list[Part] = [
        "{" if site is None else f'{{"{SITE}":{_json_value(site)},',
        '"url":"',
        columns.urls,
        '","lastmod":',
        _json_values(columns.lastmods),
        ',"changefreq":',
        _json_values(columns.changefreqs),
        ',"priority":',
        _json_values(columns.priorities),
        f',"sitemap":{_json_value(sitemap)},"extras":',
        _extras_json(columns.extras),
        ',"lastmod_text":',
        _listed_texts(columns),
        "}\n",
    ]
    return terminal_safe_json(_interleave(parts, len(columns)))


def csv_lines(sitemap: str, columns: EntryColumns, *, site: str | None = None) -> bytes:
    """Entries as rows of CSV; every cell is quoted, and none is a formula."""
    if not columns.urls:
        return b""
    texts = (_json_values(c) for c in (columns.lastmods, columns.changefreqs, columns.priorities))
    lastmods, changefreqs, priorities = map(_csv_values, texts)
    plain = is_plain_csv(columns.urls)
    parts: list[Part] = [
        "" if site is None else f"{csv_cell(output_line(site))},",
        '"' if plain else "",
        columns.urls if plain else list(map(csv_cell, map(output_line, columns.urls))),
        '","' if plain else ',"',
        lastmods,
        '","',
        changefreqs,
        '","',
        priorities,
        f'",{csv_cell(output_line(sitemap))},',
        _extras_csv(columns.extras),
        ",",
        _listed_cells(columns),
        "\r\n",
    ]
    return _interleave(parts, len(columns))


def _is_plain_json(urls: list[str]) -> bool:
    """Whether these scanned URLs need no escaping in JSON."""
    joined = "".join(urls)
    if joined.isascii():
        return not joined.encode().translate(None, UNESCAPED_IN_JSON)
    return ESCAPED_IN_JSON.search(joined) is None


def _interleave(parts: Sequence[Part], count: int) -> bytes:
    """Join columns of scanned entries to lines: all parts of one entry, then of the next."""
    merged: list[Part] = []
    for part in parts:
        if merged and isinstance(part, str) and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    width = len(merged)
    cells = [""] * (width * count)
    for position, part in enumerate(merged):
        cells[position::width] = list(repeat(part, count)) if isinstance(part, str) else part
    return "".join(cells).encode("utf-8", "backslashreplace")


def _json_value(value: object) -> str:
    """One field of a scanned entry as JSON, for the output of a scan."""
    return orjson.dumps(value, option=JSON_OPTIONS).decode()


def _json_values(values: Sequence[object]) -> Part:
    """A column of scanned entries as JSON: dates, numbers and words, none with a comma."""
    if values.count(values[0]) == len(values):
        return _json_value(values[0])
    return _json_value(values)[1:-1].split(",")


def _csv_values(texts: Part) -> Part:
    """A column of scanned entries as CSV, from its JSON values."""
    if isinstance(texts, str):
        return _csv_value(texts)
    return list(map(_csv_value, texts))


def _csv_value(text: str) -> str:
    """One field of a scanned entry as CSV: its JSON without quotes, or empty for null."""
    return "" if text == "null" else text.strip('"')


def _extras_json(extras: Sequence[dict[str, Any] | None]) -> Part:
    """The extras of scanned entries as JSON, for `siteatlas scan --format jsonl`."""
    if extras.count(None) == len(extras):
        return "null"
    return list(map(_json_value, extras))


def _extras_csv(extras: Sequence[dict[str, Any] | None]) -> Part:
    """The extras of scanned entries as CSV cells, for `siteatlas scan --format csv`."""
    if extras.count(None) == len(extras):
        return '""'
    return ['""' if e is None else csv_cell(_extras_csv_text(e)) for e in extras]


def _listed_texts(columns: EntryColumns) -> Part:
    """The column `lastmod_text` of scanned entries as JSON."""
    texts = listed_texts(columns.lastmods, columns.listed_lastmods())
    if texts.count(None) == len(texts):
        return "null"
    if _are_plain_dates(texts):
        return [f'"{text}"' if text else "null" for text in texts]
    return list(map(_json_value, texts))


def _listed_cells(columns: EntryColumns) -> Part:
    """The column `lastmod_text` of scanned entries as CSV cells."""
    texts = listed_texts(columns.lastmods, columns.listed_lastmods())
    if texts.count(None) == len(texts):
        return '""'
    if _are_plain_dates(texts):
        return [f'"{text or ""}"' for text in texts]
    return [csv_cell(output_line(text or "")) for text in texts]


def _are_plain_dates(texts: Sequence[str | None]) -> bool:
    """Whether these `lastmod` texts need no escaping in JSON and CSV."""
    return PLAIN_DATES.fullmatch("".join([f"{text}," for text in texts if text])) is not None


def _extras_csv_text(value: object) -> str:
    """The extras of one scanned entry as text for its CSV cell."""
    return terminal_safe_json(orjson.dumps(value, option=JSON_OPTIONS)).decode()


def _rows_encoders(sitemap: str, columns: EntryColumns) -> Sequence[tuple[object, ...]]:
    """Scanned entries as rows in the order of `FIELDS`, for `siteatlas scan --format jsonl`."""
    return list(
        zip(
            columns.urls,
            columns.lastmods,
            columns.changefreqs,
            columns.priorities,
            repeat(sitemap, len(columns)),
            columns.extras,
            listed_texts(columns.lastmods, columns.listed_lastmods()),
            strict=True,
        )
    )


def _object_line(row: tuple[object, ...], of_site: dict[str, str]) -> bytes:
    """One scanned entry as a JSON line, for `siteatlas scan --format jsonl`."""
    return orjson.dumps(of_site | dict(zip(FIELDS, row, strict=True)), option=LINE_OPTIONS)


class SiteEncoder:
    """Filters and encodes entries of one site as `ScanRunner` does, in a reader process."""

    def __init__(self, site: str, encode: EntryEncoder, wanted: EntryFilter) -> None:
        self._site = site
        self._encode = encode
        self._wanted = wanted

    def __call__(self, event: EntriesRead) -> EncodedEntries:
        undated_before = self._wanted.undated
        columns = self._wanted.apply(event.columns)
        return EncodedEntries(
            data=self._encode(self._site, EntriesRead(event.url, columns)),
            found=len(event.columns),
            kept=len(columns),
            dated=len(columns) - columns.lastmods.count(None),
            undated=self._wanted.undated - undated_before,
        )


class ScanFormat(StrEnum):
    """The output formats; `urls`, `jsonl` and `csv` are written while the scan runs."""

    TABLE = "table"
    TREE = "tree"
    URLS = "urls"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


SITEMAP_COLUMNS = [
    Column("SITEMAP", kind=ColumnKind.URL),
    Column("TYPE"),
    Column("FOUND BY", from_width=WIDE),
    Column("URLS", right=True, kind=ColumnKind.COUNT),
    Column("OUTCOME", kind=ColumnKind.STATUS),
    Column("ERROR"),
]

ReportEncoder = Callable[[ScanReport], bytes]


def report_nothing(_report: ScanReport) -> bytes:
    """For formats that are written while the scan runs."""
    return b""


@dataclass(frozen=True, slots=True)
class ScanEncoders:
    """The encoders of one format: a head, chunks of entries, a report for each site, a tail."""

    entries: EntryEncoder = encode_nothing
    report: ReportEncoder = report_nothing
    head: bytes = b""
    tail: bytes = b""


def encoders_for(format: ScanFormat, *, many: bool, terminal: bool) -> ScanEncoders:
    """The encoders of a format for one site or several; a terminal gets drawn tables."""
    match format:
        case ScanFormat.URLS:
            return ScanEncoders(entries=encode_urls)
        case ScanFormat.JSONL:
            return ScanEncoders(entries=encode_objects_of_site if many else encode_objects)
        case ScanFormat.CSV:
            encode = encode_csv_of_site if many else encode_csv
            return ScanEncoders(entries=encode, head=csv_head(with_site=many))
        case ScanFormat.TREE:
            return ScanEncoders(report=tree_text)
        case ScanFormat.TABLE:
            return ScanEncoders(report=_drawn_sitemaps if terminal else _plain_sitemaps)
        case ScanFormat.JSON if many:
            return _report_list_encoders()
        case ScanFormat.JSON:
            return ScanEncoders(report=lambda report: json_bytes(report, indented=terminal))


def _report_list_encoders() -> ScanEncoders:
    """The encoders of `siteatlas scan --format json` for several sites: one list of reports."""
    written = 0

    def encode(report: ScanReport) -> bytes:
        """Encode the report of one site as the next item of a JSON list."""
        nonlocal written
        written += 1
        return (b"," if written > 1 else b"") + json_bytes(report)

    return ScanEncoders(report=encode, head=b'{"items":[', tail=b'],"next_cursor":null}\n')


def _rows_formats(report: ScanReport) -> list[list[object]]:
    """The rows of the sitemap table that `siteatlas scan` prints."""
    rows: list[list[object]] = [
        [s.url, s.type, s.discovery_method, s.url_count, s.outcome, s.error_code]
        for s in report.sitemaps
    ]
    return rows + [
        [c.url, None, c.method, None, c.verdict, c.reason] for c in unfetched_children(report)
    ]


def _plain_sitemaps(report: ScanReport) -> bytes:
    """The sitemap table of `siteatlas scan` as plain text, for a file or a pipe."""
    if not report.sitemaps:
        return b""
    cells = [[cell_text(value) for value in row] for row in _rows_formats(report)]
    return plain_table(SITEMAP_COLUMNS, cells).encode()


def _drawn_sitemaps(report: ScanReport) -> bytes:
    """The sitemap table of `siteatlas scan`, fitted to the terminal."""
    if not report.sitemaps:
        return b""
    # Late, because rich is needed on a terminal only.
    from siteatlas.cli.terminal.tables import console_for, terminal_table

    console = console_for(sys.stdout)
    with console.capture() as capture:
        console.print(terminal_table(SITEMAP_COLUMNS, _rows_formats(report), console.width))
    return capture.get().encode()


class DataSink(Protocol):
    """Writes chunks of output; each chunk is written completely, or not at all on an error."""

    async def ready(self) -> None:
        """Wait until the next chunk can be written; raises the error of an earlier one."""

    def put(self, data: bytes) -> None:
        """Write a chunk. Call `ready` first."""

    async def close(self, *, keep: bool) -> None:
        """Write everything that is pending. `keep=False` leaves a file as it was before."""

    def abandon(self) -> None:
        """Discard unfinished output without waiting; the process ends now."""


def open_sink(output: Path | None) -> DataSink:
    """Stdout, or the file at `output`."""
    if output is None or str(output) == "-":
        return _stdout_sink()
    try:
        return _file_sink(output)
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror}.") from error


class DirectSink:
    """Writes at once; for what cannot stall: files and devices that are no terminals."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write

    async def ready(self) -> None:
        """Return at once; this output never stalls."""

    def put(self, data: bytes) -> None:
        """Write the chunk."""
        try:
            self._write(data)
        except OSError as error:
            raise _output_error(error) from error

    async def close(self, *, keep: bool) -> None:
        """Nothing is pending."""

    def abandon(self) -> None:
        """Do nothing: no chunk of scan output is unfinished."""


class ThreadSink:
    """Writes in a separate thread; for pipes, sockets and terminals, whose readers may stall."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._thread = DaemonWorker("output")
        self._pending: asyncio.Future[None] | None = None
        self._error: OutputFailed | None = None

    async def ready(self) -> None:
        """Wait until no chunk is being written; of several waiters, one at a time continues."""
        while (pending := self._pending) is not None:
            # Not awaited directly: cancelling the waiter must not cancel the write in progress.
            await asyncio.wait([pending])
            if self._pending is pending:
                self._pending = None
                self._record_write_error(pending.exception())
        if self._error is not None:
            raise self._error

    def put(self, data: bytes) -> None:
        """Pass a chunk of scan output to the thread that writes it."""
        if data:
            self._pending = self._thread.submit(lambda: write_chunk(self._descriptor, data))

    async def close(self, *, keep: bool) -> None:  # noqa: ARG002
        """Wait for the last chunk."""
        await self.ready()

    def abandon(self) -> None:
        """Do nothing: a chunk of scan output in the thread cannot be withdrawn."""

    def _record_write_error(self, error: BaseException | None) -> None:
        """Keep the error of the thread that writes the output of a scan, and write no more."""
        if not isinstance(error, OSError):
            return
        self._error = _output_error(error)
        # Nobody reads any more; the end of the process must not complain of it.
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), self._descriptor)


class FileSink(DirectSink):
    """Writes to a temporary file and moves it into place at the end.

    Until then, or if the result is not kept, an existing file is not changed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
        self._file = self._unfinished.open("xb", buffering=0)
        super().__init__(lambda data: write_chunk(self._file.fileno(), data))

    async def close(self, *, keep: bool) -> None:
        """Move the file into place, or delete it."""
        self._file.close()
        try:
            if keep:
                self._unfinished.replace(self._path)
            else:
                self._unfinished.unlink()
        except OSError as error:
            raise _output_error(error) from error

    def abandon(self) -> None:
        """Delete the unfinished output file of the scan."""
        self._unfinished.unlink(missing_ok=True)


def write_chunk(descriptor: int, data: bytes) -> None:
    """Write a chunk of scan output completely, even to a descriptor made non-blocking elsewhere."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


def _stdout_sink() -> DataSink:
    """Stdout as a sink of scan output; a thread writes to it if its reader may stall."""
    sys.stdout.flush()
    try:
        descriptor = sys.stdout.fileno()
    except OSError:
        return DirectSink(sys.stdout.buffer.write)
    if _may_stall(descriptor):
        return ThreadSink(descriptor)
    return DirectSink(lambda data: write_chunk(descriptor, data))


def _file_sink(path: Path) -> DataSink:
    """The sink for `siteatlas scan --output`: a regular file, or a device or pipe."""
    if path.exists() and not path.is_file():
        return ThreadSink(os.open(path, os.O_WRONLY))
    return FileSink(path.resolve())


def _may_stall(descriptor: int) -> bool:
    """Whether a write of scan output may block: not to a regular file or /dev/null."""
    mode = os.fstat(descriptor).st_mode
    device = stat.S_ISCHR(mode) and not os.isatty(descriptor)
    return not (stat.S_ISREG(mode) or device)


def _output_error(error: OSError) -> OutputClosed | OutputFailed:
    """The error that ends a scan whose output cannot be written."""
    if isinstance(error, BrokenPipeError):
        return OutputClosed()
    return OutputFailed(f"The output cannot be written: {error.strerror}.")
