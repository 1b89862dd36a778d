"""What a scan writes and where: formats, the entries they keep, and stdout or a file as a sink.

Entries are encoded a few hundred at a time and by column, because an object per entry takes three
times as long; a chunk with unusual values is encoded entry by entry. Sinks give backpressure
without blocking: a stalled pipe blocks only the thread that writes to it, so that network timeouts
can still tell a slow site from a slow reader.

Reader processes import this module too: they filter and encode the entries that they read.
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
    console_for,
    counted,
    json_bytes,
    output_line,
    plain_table,
    terminal_safe_json,
    url_lines,
)
from siteatlas.cli.terminal.tables import terminal_table
from siteatlas.errors import InputError, OutputClosed, OutputFailed
from siteatlas.scanner.events import EncodedEntries, EntriesRead, EntryColumns
from siteatlas.scanner.options import any_of_patterns
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.entries import listed_texts
from siteatlas.scanner.report import CandidateSeen, ScanReport, SitemapSeen
from siteatlas.text import csv_cell, is_plain_csv, printable

FIELDS = ("url", "lastmod", "changefreq", "priority", "sitemap", "extras", "lastmod_text")


class ScanFormat(StrEnum):
    """The output formats; `urls`, `jsonl` and `csv` are written while the scan runs."""

    TABLE = "table"
    TREE = "tree"
    URLS = "urls"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


# Receives the name of the site and some of its entries.
EntryEncoder = Callable[[str, EntriesRead], bytes]
ReportEncoder = Callable[[ScanReport], bytes]


def encode_nothing(_site: str, _event: EntriesRead) -> bytes:
    """For formats that print their result at the end."""
    return b""


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
    written = 0

    def encode(report: ScanReport) -> bytes:
        nonlocal written
        written += 1
        return (b"," if written > 1 else b"") + json_bytes(report)

    return ScanEncoders(report=encode, head=b'{"items":[', tail=b'],"next_cursor":null}\n')


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


def csv_head(*, with_site: bool = False) -> bytes:
    """The header line of `siteatlas scan --format csv`."""
    names = ("site", *FIELDS) if with_site else FIELDS
    return (",".join(f'"{name}"' for name in names) + "\r\n").encode()


# A column of texts, or one text that is the same for every entry.
Part = str | Sequence[str]
ESCAPED_IN_JSON = re.compile(r"[\"\\\x00-\x1f\ud800-\udfff]")
UNESCAPED_IN_JSON = bytes(set(range(0x20, 0x7F)) - set(b'"\\'))
PLAIN_DATES = re.compile(r"(?:[0-9][0-9T:.Z-]*,)*")


def object_lines(sitemap: str, columns: EntryColumns, *, site: str | None = None) -> bytes:
    """Entries as JSON lines, with the field names of the API; harmless on a terminal."""
    if not columns.urls:
        return b""
    if not _is_plain_json(columns.urls):
        of_site = {} if site is None else {"site": site}
        return terminal_safe_json(_escaped_object_lines(sitemap, columns, of_site))
    parts: list[Part] = [
        "{" if site is None else f'{{"site":{_json_value(site)},',
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
        _listed_json(columns),
        "}\n",
    ]
    return terminal_safe_json(_interleave(parts, len(columns)))


def _is_plain_json(urls: list[str]) -> bool:
    joined = "".join(urls)
    if joined.isascii():
        return not joined.encode().translate(None, UNESCAPED_IN_JSON)
    return ESCAPED_IN_JSON.search(joined) is None


def _escaped_object_lines(sitemap: str, columns: EntryColumns, of_site: dict[str, str]) -> bytes:
    rows = zip(
        columns.urls,
        columns.lastmods,
        columns.changefreqs,
        columns.priorities,
        repeat(sitemap, len(columns)),
        columns.extras,
        listed_texts(columns.lastmods, columns.listed_lastmods()),
        strict=True,
    )
    options = JSON_OPTIONS | orjson.OPT_APPEND_NEWLINE
    return b"".join(
        orjson.dumps(of_site | dict(zip(FIELDS, row, strict=True)), option=options) for row in rows
    )


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
        _listed_csv(columns),
        "\r\n",
    ]
    return _interleave(parts, len(columns))


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
    return orjson.dumps(value, option=JSON_OPTIONS).decode()


def _json_values(values: Sequence[object]) -> Part:
    """A column of scanned entries as JSON: dates, numbers and words, none with a comma."""
    if values.count(values[0]) == len(values):
        return _json_value(values[0])
    return _json_value(values)[1:-1].split(",")


def _csv_values(texts: Part) -> Part:
    """A column as CSV, from its JSON: without quotes, and empty for null."""
    if isinstance(texts, str):
        return "" if texts == "null" else texts.strip('"')
    return ["" if text == "null" else text.strip('"') for text in texts]


def _extras_json(extras: Sequence[dict[str, Any] | None]) -> Part:
    if extras.count(None) == len(extras):
        return "null"
    return list(map(_json_value, extras))


def _extras_csv(extras: Sequence[dict[str, Any] | None]) -> Part:
    if extras.count(None) == len(extras):
        return '""'
    encoded = (None if e is None else orjson.dumps(e, option=JSON_OPTIONS) for e in extras)
    return ['""' if e is None else csv_cell(terminal_safe_json(e).decode()) for e in encoded]


def _listed_json(columns: EntryColumns) -> Part:
    texts = listed_texts(columns.lastmods, columns.listed_lastmods())
    if texts.count(None) == len(texts):
        return "null"
    if _are_plain_dates(texts):
        return [f'"{text}"' if text else "null" for text in texts]
    return list(map(_json_value, texts))


def _listed_csv(columns: EntryColumns) -> Part:
    texts = listed_texts(columns.lastmods, columns.listed_lastmods())
    if texts.count(None) == len(texts):
        return '""'
    if _are_plain_dates(texts):
        return [f'"{text or ""}"' for text in texts]
    return [csv_cell(output_line(text or "")) for text in texts]


def _are_plain_dates(texts: Sequence[str | None]) -> bool:
    return PLAIN_DATES.fullmatch("".join([f"{text}," for text in texts if text])) is not None


SITEMAP_COLUMNS = [
    Column("SITEMAP", kind=ColumnKind.URL),
    Column("TYPE"),
    Column("FOUND BY", from_width=WIDE),
    Column("URLS", right=True, kind=ColumnKind.COUNT),
    Column("OUTCOME", kind=ColumnKind.STATUS),
    Column("ERROR"),
]


def _plain_sitemaps(report: ScanReport) -> bytes:
    if not report.sitemaps:
        return b""
    cells = [[cell_text(value) for value in row] for row in _sitemap_rows(report)]
    return plain_table(SITEMAP_COLUMNS, cells).encode()


def _drawn_sitemaps(report: ScanReport) -> bytes:
    if not report.sitemaps:
        return b""
    console = console_for(sys.stdout)
    with console.capture() as capture:
        console.print(terminal_table(SITEMAP_COLUMNS, _sitemap_rows(report), console.width))
    return capture.get().encode()


def _sitemap_rows(report: ScanReport) -> list[list[object]]:
    rows: list[list[object]] = [
        [s.url, s.type, s.discovery_method, s.url_count, s.outcome, s.error_code]
        for s in report.sitemaps
    ]
    return rows + [
        [c.url, None, c.method, None, c.verdict, c.reason] for c in unfetched_children(report)
    ]


def unfetched_children(report: ScanReport) -> list[CandidateSeen]:
    """The sitemaps listed in a local index, which a scan does not fetch."""
    return [
        candidate for candidate in report.candidates if candidate.reason == ProblemCode.NOT_FETCHED
    ]


# The fork of a tree, and what stands below it.
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


def _branches(
    sitemaps: Sequence[SitemapSeen], children: dict[str, list[SitemapSeen]], indent: str
) -> Iterator[str]:
    for position, sitemap in enumerate(sitemaps, start=1):
        fork, below = LAST if position == len(sitemaps) else MIDDLE
        yield indent + fork + describe(sitemap)
        # Taken out, so that indexes that name each other cannot loop forever.
        yield from _branches(children.pop(sitemap.url, []), children, indent + below)


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


def _stdout_sink() -> DataSink:
    sys.stdout.flush()
    try:
        descriptor = sys.stdout.fileno()
    except OSError:
        return DirectSink(sys.stdout.buffer.write)
    if _may_stall(descriptor):
        return ThreadSink(descriptor)
    return DirectSink(lambda data: write_chunk(descriptor, data))


def _file_sink(path: Path) -> DataSink:
    if path.exists() and not path.is_file():
        return ThreadSink(os.open(path, os.O_WRONLY))
    return FileSink(path.resolve())


def _may_stall(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    device = stat.S_ISCHR(mode) and not os.isatty(descriptor)
    return not (stat.S_ISREG(mode) or device)


class DirectSink:
    """Writes at once; for what cannot stall: files and devices that are no terminals."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write

    async def ready(self) -> None:
        """Return at once; this output never stalls."""

    def put(self, data: bytes) -> None:
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
        await self.ready()

    def abandon(self) -> None:
        """Do nothing: a chunk of scan output in the thread cannot be withdrawn."""

    def _record_write_error(self, error: BaseException | None) -> None:
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
        self._file.close()
        try:
            if keep:
                self._unfinished.replace(self._path)
            else:
                self._unfinished.unlink()
        except OSError as error:
            raise _output_error(error) from error

    def abandon(self) -> None:
        self._unfinished.unlink(missing_ok=True)


def write_chunk(descriptor: int, data: bytes) -> None:
    """Write a chunk of scan output completely, even to a descriptor made non-blocking elsewhere."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


def _output_error(error: OSError) -> OutputClosed | OutputFailed:
    if isinstance(error, BrokenPipeError):
        return OutputClosed()
    return OutputFailed(f"The output cannot be written: {error.strerror}.")
