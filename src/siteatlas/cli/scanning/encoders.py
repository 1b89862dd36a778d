"""Encodes entries as plain URLs, JSON lines or CSV, a few hundred entries at a time.

Works on columns, because creating an object per entry takes three times as long. A chunk with
unusual values is encoded entry by entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import orjson

from siteatlas.cli.terminal.output import (
    JSON_OPTIONS,
    output_line,
    terminal_safe_json,
    url_lines,
)
from siteatlas.csv_cells import csv_cell, is_plain_csv
from siteatlas.scanner.events import EntriesRead, EntryColumns
from siteatlas.scanner.reading.lastmod_text import listed_texts

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
        rows = _rows(sitemap, columns)
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


def _rows(sitemap: str, columns: EntryColumns) -> Sequence[tuple[object, ...]]:
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
