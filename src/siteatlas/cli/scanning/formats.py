"""The output formats of a scan: what is written per entry, per site and at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from siteatlas.cli.scanning.encoders import (
    EntryEncoder,
    csv_head,
    encode_csv,
    encode_csv_of_site,
    encode_nothing,
    encode_objects,
    encode_objects_of_site,
    encode_urls,
)
from siteatlas.cli.scanning.sitemap_tree import tree_text, unfetched_children
from siteatlas.cli.terminal.output import (
    WIDE,
    Column,
    ColumnKind,
    cell_text,
    json_bytes,
    plain_table,
)
from siteatlas.scanner.report import ScanReport


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


def _rows(report: ScanReport) -> list[list[object]]:
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
    cells = [[cell_text(value) for value in row] for row in _rows(report)]
    return plain_table(SITEMAP_COLUMNS, cells).encode()


def _drawn_sitemaps(report: ScanReport) -> bytes:
    """The sitemap table of `siteatlas scan`, fitted to the terminal."""
    if not report.sitemaps:
        return b""
    # Late, because rich is needed on a terminal only.
    from siteatlas.cli.terminal.drawing import console_for, terminal_table

    console = console_for(sys.stdout)
    with console.capture() as capture:
        console.print(terminal_table(SITEMAP_COLUMNS, _rows(report), console.width))
    return capture.get().encode()
