"""URL entries on stdout while they arrive: bare URLs or JSON lines, in large pieces."""

from __future__ import annotations

import re
from collections.abc import Callable

import orjson

from siteatlas.cli.output import JSON_OPTIONS, harmless_json, printable, write_bytes
from siteatlas.scanner.events import EntriesRead, EntryColumns

LINE_OPTIONS = JSON_OPTIONS | orjson.OPT_APPEND_NEWLINE
NOT_IN_A_LINE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
SEAM = b'},{"url":'
LINE_SEAM = b'}\n{"url":'

EntryWriter = Callable[[EntriesRead], None]


def write_nothing(_event: EntriesRead) -> None:
    """For formats that print their result at the end."""


def write_urls(event: EntriesRead) -> None:
    """One URL a line."""
    write_bytes(url_lines(event.columns.urls))


def write_objects(event: EntriesRead) -> None:
    """One JSON object a line."""
    write_bytes(harmless_json(object_lines(event.url, event.columns)))


def url_lines(urls: list[str]) -> bytes:
    """URLs as lines; one that holds what no line may hold is escaped."""
    if not urls:
        return b""
    lines = "\n".join(urls)
    if lines.count("\n") >= len(urls) or NOT_IN_A_LINE.search(lines):
        lines = "\n".join(map(printable, urls))
    return (lines + "\n").encode("utf-8", "backslashreplace")


def object_lines(sitemap: str, columns: EntryColumns) -> bytes:
    """Entries as JSON lines, with the field names of the API.

    Encoding a list is several times faster than encoding its items one by one. The list is cut
    into lines only if it shows exactly the seams that it must have.
    """
    objects = [
        {
            "url": url,
            "lastmod": lastmod,
            "changefreq": changefreq,
            "priority": priority,
            "sitemap": sitemap,
            "extras": extras,
        }
        for url, lastmod, changefreq, priority, extras in zip(
            columns.urls,
            columns.lastmods,
            columns.changefreqs,
            columns.priorities,
            columns.extras,
            strict=True,
        )
    ]
    if not objects:
        return b""
    encoded = orjson.dumps(objects, option=JSON_OPTIONS)
    if encoded.count(SEAM) == len(objects) - 1:
        return encoded[1:-1].replace(SEAM, LINE_SEAM) + b"\n"
    return b"".join(orjson.dumps(entry, option=LINE_OPTIONS) for entry in objects)
