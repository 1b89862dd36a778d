"""The formats of an export: batches of views in, bytes out.

CSV and JSON Lines are made here, Parquet by `parquet.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import Any, Protocol

import orjson

from siteatlas.aio import fair_loop
from siteatlas.text import csv_cell

# What is exported of each kind of extras.
EXTRA_FIELDS = {
    "images": ("loc", "title", "caption", "license", "geo_location"),
    "videos": (
        "title",
        "description",
        "thumbnail_loc",
        "content_loc",
        "player_loc",
        "duration",
        "publication_date",
    ),
    "alternates": ("href", "hreflang", "media"),
    "news": (
        "publication_name",
        "publication_language",
        "publication_date",
        "title",
        "genres",
        "keywords",
        "stock_tickers",
    ),
}


class Exported(StrEnum):
    """What can be exported."""

    URLS = "urls"
    CHANGES = "changes"


class Kind(StrEnum):
    """The type of a column."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    TIME = "time"
    TEXTS = "texts"
    RECORD = "record"
    RECORDS = "records"


@dataclass(frozen=True, slots=True)
class ExportColumn:
    """A column, and how its value is taken from a view; a record has texts as `fields`."""

    name: str
    kind: Kind
    value: Callable[[Any], Any]
    fields: tuple[str, ...] = ()


class ChangeColumns(StrEnum):
    """Which columns a CSV file of changes has: all, or those that people read."""

    ALL = "all"
    SHORT = "short"


@dataclass(frozen=True, slots=True)
class ExportSchema:
    """The columns of an export: `flat` for CSV, `nested` for Parquet.

    `view_fields` are the fields of a view that the columns are taken from.
    """

    name: str
    version: int
    view_fields: Sequence[str]
    flat: Sequence[ExportColumn]
    nested: Sequence[ExportColumn]

    @property
    def label(self) -> str:
        """Name and version, as the metadata of an export show them."""
        return f"{self.name}/{self.version}"


def _field(name: str, kind: Kind = Kind.TEXT) -> ExportColumn:
    return ExportColumn(name, kind, attrgetter(name))


def _identifier(name: str) -> ExportColumn:
    return ExportColumn(name, Kind.TEXT, lambda view: _text_of(getattr(view, name)))


def _json(name: str) -> ExportColumn:
    return ExportColumn(name, Kind.TEXT, lambda view: _json_of(getattr(view, name)))


def _text_of(value: object) -> str | None:
    return None if value is None else str(value)


def _json_of(value: object) -> str | None:
    return None if value is None else orjson.dumps(value).decode()


def _seconds(moment: datetime | None) -> datetime | None:
    return moment and moment.replace(microsecond=0)


def _lastmod_of(state: dict[str, Any] | None) -> str | None:
    """The date as the document has it, or the moment that it stands for."""
    listed = state or {}
    moment = listed.get("lastmod")
    return listed.get("lastmod_text") or (moment and _time_text(moment))


def _records(key: str, fields: Sequence[str], view: Any) -> list[dict[str, str | None]] | None:
    items = (view.extras or {}).get(key)
    if not isinstance(items, list):
        return None
    return [{name: _plain(item.get(name)) for name in fields} for item in items]


def _news(view: Any) -> dict[str, str | None] | None:
    news = (view.extras or {}).get("news")
    if not isinstance(news, dict):
        return None
    publication = news.get("publication")
    inner = publication if isinstance(publication, dict) else {}
    together = {**news, **{f"publication_{key}": value for key, value in inner.items()}}
    return {name: _plain(together.get(name)) for name in EXTRA_FIELDS["news"]}


def _plain(value: object) -> str | None:
    """A value of the extras if it is text; what is nested deeper is in `extras` only."""
    return value if isinstance(value, str) else None


def _news_field(name: str, view: Any) -> str | None:
    news = _news(view)
    return None if news is None else news[name]


def _addresses(key: str, names: Sequence[str], view: Any) -> str | None:
    items = _records(key, names, view) or ()
    found = (next(filter(None, item.values()), None) for item in items)
    return " ".join(address for address in found if address) or None


def _languages(view: Any) -> str | None:
    items = _records("alternates", EXTRA_FIELDS["alternates"], view) or ()
    pairs = ((item["hreflang"] or item["media"] or "", item["href"]) for item in items)
    return " ".join(f"{language}={href}" for language, href in pairs if href) or None


_url_columns = (
    _field("url"),
    _field("domain"),
    _field("sitemap"),
    _identifier("sitemap_id"),
    _field("lastmod", Kind.TIME),
    _field("lastmod_text"),
    _field("changefreq"),
    _field("priority", Kind.NUMBER),
    _field("first_seen_at", Kind.TIME),
    _field("removed_at", Kind.TIME),
)
_change_columns = (
    _field("id"),
    _field("seq", Kind.INTEGER),
    _field("kind"),
    _field("domain"),
    _field("url"),
    _field("sitemap"),
    _identifier("sitemap_id"),
    _field("previous_sitemap"),
    _identifier("previous_sitemap_id"),
    _field("scan_id", Kind.INTEGER),
    _field("not_before", Kind.TIME),
    _field("not_after", Kind.TIME),
    _field("fields", Kind.TEXTS),
    _field("evidence"),
    _json("before"),
    _json("after"),
    _json("data"),
)
_short_change_columns = (
    ExportColumn("when", Kind.TIME, lambda view: _seconds(view.not_after)),
    _field("kind"),
    # What happened to a site as a whole has no other address.
    ExportColumn("url", Kind.TEXT, lambda view: view.domain if view.sitemap is None else view.url),
    _field("sitemap"),
    ExportColumn("lastmod_before", Kind.TEXT, lambda view: _lastmod_of(view.before)),
    ExportColumn("lastmod_after", Kind.TEXT, lambda view: _lastmod_of(view.after)),
)

SCHEMAS = {
    Exported.URLS: ExportSchema(
        Exported.URLS,
        1,
        view_fields=(*(column.name for column in _url_columns), "extras"),
        flat=(
            *_url_columns,
            ExportColumn("images", Kind.TEXT, partial(_addresses, "images", ("loc",))),
            ExportColumn(
                "videos",
                Kind.TEXT,
                partial(_addresses, "videos", ("content_loc", "player_loc", "thumbnail_loc")),
            ),
            ExportColumn("alternates", Kind.TEXT, _languages),
            *(
                ExportColumn(f"news_{name}", Kind.TEXT, partial(_news_field, name))
                for name in EXTRA_FIELDS["news"]
            ),
            _json("extras"),
        ),
        nested=(
            *_url_columns,
            *(
                ExportColumn(key, Kind.RECORDS, partial(_records, key, fields), fields)
                for key, fields in EXTRA_FIELDS.items()
                if key != "news"
            ),
            ExportColumn("news", Kind.RECORD, _news, EXTRA_FIELDS["news"]),
            _json("extras"),
        ),
    ),
    Exported.CHANGES: ExportSchema(
        Exported.CHANGES,
        1,
        view_fields=[column.name for column in _change_columns],
        flat=_change_columns,
        nested=_change_columns,
    ),
}

SHORT_CHANGES = ExportSchema(
    "short-changes",
    1,
    view_fields=[column.name for column in _change_columns],
    flat=_short_change_columns,
    nested=_change_columns,
)

_json_line = partial(orjson.dumps, default=str, option=orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE)


class ExportFormat(StrEnum):
    """The formats of an export."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"

    @property
    def media_type(self) -> str:
        """The content type of a response in this format."""
        return MEDIA_TYPES[self]


MEDIA_TYPES = {
    ExportFormat.CSV: "text/csv; charset=utf-8",
    ExportFormat.JSONL: "application/jsonl",
    ExportFormat.PARQUET: "application/vnd.apache.parquet",
}


@dataclass(frozen=True, slots=True)
class ExportMetadata:
    """What an export is of: its schema, and the number of the feed that it is not older than."""

    schema: str
    as_of_seq: int
    feed_id: str


class Encoder(Protocol):
    """Makes the bytes of one export; `start`, then some rows at a time, then `end`."""

    def start(self) -> bytes:
        """The bytes before the first row."""

    def rows(self, views: Sequence[Any]) -> bytes:
        """The bytes of some rows."""

    def end(self) -> bytes:
        """The bytes after the last row."""


async def encoded(
    encoder: Encoder, batches: AsyncIterator[Sequence[Any]]
) -> AsyncGenerator[bytes, None]:
    """The bytes of an export; they end before its end if reading fails."""
    yield encoder.start()
    async for views in batches:
        parts = fair_loop().time_slices(map(encoder.rows, row_slices(views)))
        yield b"".join([part async for part in parts])
    yield encoder.end()


def row_slices(views: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The rows of a batch, as many at a time as are encoded in one time slice."""
    size = 100  # encoded in about two milliseconds
    for first in range(0, len(views), size):
        yield views[first : first + size]


class CsvEncoder:
    """CSV: one header line, every cell quoted, no cell that a spreadsheet would calculate."""

    def __init__(self, columns: Sequence[ExportColumn]) -> None:
        self._columns = columns

    def start(self) -> bytes:
        """The header line."""
        return _csv_line([column.name for column in self._columns]).encode()

    def rows(self, views: Sequence[Any]) -> bytes:
        """One line per row."""
        lines = (
            _csv_line([_cell_text(column.value(view)) for column in self._columns])
            for view in views
        )
        return "".join(lines).encode("utf-8", "backslashreplace")

    def end(self) -> bytes:
        """Nothing: a CSV file has no place for an end mark."""
        return b""


def _csv_line(texts: Sequence[str]) -> str:
    return ",".join(map(csv_cell, texts)) + "\r\n"


def _cell_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return _time_text(value)
    if isinstance(value, list):
        return " ".join(value)
    return str(value)


def _time_text(value: datetime) -> str:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


class JsonLinesEncoder:
    """JSON Lines: one object per row with the fields of the API, and a last line that ends it."""

    def __init__(self, metadata: ExportMetadata) -> None:
        self._metadata = metadata
        self._count = 0

    def start(self) -> bytes:
        """Nothing: the first line is a row."""
        return b""

    def rows(self, views: Sequence[Any]) -> bytes:
        """One line per row."""
        self._count += len(views)
        return b"".join(map(_json_line, views))

    def end(self) -> bytes:
        """The line that proves that none is missing."""
        made = self._metadata
        last = {
            "end": True,
            "count": self._count,
            "schema": made.schema,
            "as_of_seq": made.as_of_seq,
            "feed_id": made.feed_id,
        }
        return _json_line(last)
