"""The columns of an export: their names, order and types, which a version number identifies.

A column is never renamed, and its type never changes, within a version; new ones come last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import Any

import orjson

IMAGE_FIELDS = ("loc", "title", "caption", "license", "geo_location")
ALTERNATE_FIELDS = ("href", "hreflang", "media")
VIDEO_FIELDS = (
    "title",
    "description",
    "thumbnail_loc",
    "content_loc",
    "player_loc",
    "duration",
    "publication_date",
)
NEWS_FIELDS = (
    "publication_name",
    "publication_language",
    "publication_date",
    "title",
    "genres",
    "keywords",
    "stock_tickers",
)


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


@dataclass(frozen=True, slots=True)
class ExportSchema:
    """The columns of an export: `flat` for CSV, `nested` for Parquet.

    `view_fields` are the fields of a view that the columns are taken from.
    """

    name: Exported
    version: int
    view_fields: Sequence[str]
    flat: Sequence[ExportColumn]
    nested: Sequence[ExportColumn]

    @property
    def label(self) -> str:
        """Name and version, as the metadata of an export show them."""
        return f"{self.name.value}/{self.version}"


def _field(name: str, kind: Kind = Kind.TEXT) -> ExportColumn:
    """A column that is a field of the view."""
    return ExportColumn(name, kind, attrgetter(name))


def _identifier(name: str) -> ExportColumn:
    """A column that is a UUID of the view, as text."""
    return ExportColumn(name, Kind.TEXT, lambda view: _text_of(getattr(view, name)))


def _json(name: str) -> ExportColumn:
    """A column that is an object of the view, as JSON."""
    return ExportColumn(name, Kind.TEXT, lambda view: _json_of(getattr(view, name)))


def _text_of(value: object) -> str | None:
    """A value as text, None for none."""
    return None if value is None else str(value)


def _json_of(value: object) -> str | None:
    """A value as JSON, None for none."""
    return None if value is None else orjson.dumps(value).decode()


def _records(key: str, fields: Sequence[str], view: Any) -> list[dict[str, str | None]] | None:
    """The items of one list of the extras; None if the entry has none."""
    items = (view.extras or {}).get(key)
    if not isinstance(items, list):
        return None
    return [{name: _plain(item.get(name)) for name in fields} for item in items]


def _news(view: Any) -> dict[str, str | None] | None:
    """The news of an entry, with the fields of its publication among the others."""
    news = (view.extras or {}).get("news")
    if not isinstance(news, dict):
        return None
    publication = news.get("publication")
    inner = publication if isinstance(publication, dict) else {}
    together = {**news, **{f"publication_{key}": value for key, value in inner.items()}}
    return {name: _plain(together.get(name)) for name in NEWS_FIELDS}


def _plain(value: object) -> str | None:
    """A value of the extras if it is text; what is nested deeper is in `extras` only."""
    return value if isinstance(value, str) else None


def _news_field(name: str, view: Any) -> str | None:
    """One field of the news of an entry."""
    news = _news(view)
    return None if news is None else news[name]


def _addresses(key: str, names: Sequence[str], view: Any) -> str | None:
    """The addresses of one list of the extras, separated by spaces."""
    items = _records(key, names, view) or ()
    found = (next(filter(None, item.values()), None) for item in items)
    return " ".join(address for address in found if address) or None


def _languages(view: Any) -> str | None:
    """The alternates of an entry as `language=address`, separated by spaces."""
    items = _records("alternates", ALTERNATE_FIELDS, view) or ()
    pairs = ((item["hreflang"] or item["media"] or "", item["href"]) for item in items)
    return " ".join(f"{language}={href}" for language, href in pairs if href) or None


_URL_FIELDS = (
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
_FLAT_EXTRAS = (
    ExportColumn("images", Kind.TEXT, partial(_addresses, "images", ("loc",))),
    ExportColumn(
        "videos",
        Kind.TEXT,
        partial(_addresses, "videos", ("content_loc", "player_loc", "thumbnail_loc")),
    ),
    ExportColumn("alternates", Kind.TEXT, _languages),
    *(ExportColumn(f"news_{name}", Kind.TEXT, partial(_news_field, name)) for name in NEWS_FIELDS),
)
_NESTED_EXTRAS = (
    ExportColumn("images", Kind.RECORDS, partial(_records, "images", IMAGE_FIELDS), IMAGE_FIELDS),
    ExportColumn("videos", Kind.RECORDS, partial(_records, "videos", VIDEO_FIELDS), VIDEO_FIELDS),
    ExportColumn(
        "alternates",
        Kind.RECORDS,
        partial(_records, "alternates", ALTERNATE_FIELDS),
        ALTERNATE_FIELDS,
    ),
    ExportColumn("news", Kind.RECORD, _news, NEWS_FIELDS),
)
_CHANGE_FIELDS = (
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

SCHEMAS = {
    Exported.URLS: ExportSchema(
        Exported.URLS,
        1,
        view_fields=(*(column.name for column in _URL_FIELDS), "extras"),
        flat=(*_URL_FIELDS, *_FLAT_EXTRAS, _json("extras")),
        nested=(*_URL_FIELDS, *_NESTED_EXTRAS, _json("extras")),
    ),
    Exported.CHANGES: ExportSchema(
        Exported.CHANGES,
        1,
        view_fields=[column.name for column in _CHANGE_FIELDS],
        flat=_CHANGE_FIELDS,
        nested=_CHANGE_FIELDS,
    ),
}
