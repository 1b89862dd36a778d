"""Rows of `sitemap_urls` as parameters of a statement, unnested on the server.

A column goes in as one parameter: several times faster than row by row. Texts travel joined by line
breaks, which no URL can hold, because the driver looks at every element of an array. Numbers
travel as arrays, and so do texts of dates, which may be anything. Documents are numbered: each row
has the place of its document in `p_sitemap_ids`.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    DateTime,
    Integer,
    Text,
    Uuid,
    cast,
    func,
    literal,
    select,
)
from sqlalchemy import bindparam as bind
from sqlalchemy.dialects.postgresql import JSONB, REAL
from sqlalchemy.sql.elements import Grouping
from sqlalchemy.sql.selectable import Subquery

from siteatlas.storage.statements.url_rows import LINE_BREAK


def text_column_parameter(name: str) -> ColumnElement[Any]:
    """A column of URL rows as a statement parameter: lines, which the server splits."""
    return func.string_to_array(bind(f"p_{name}", type_=Text()), literal(LINE_BREAK), literal(""))


def array_column_parameter(name: str, type_: Any) -> ColumnElement[Any]:
    """A column of URL rows as a statement parameter: an array."""
    return bind(f"p_{name}", type_=ARRAY(type_))


def of_document(name: str, type_: Any, place: ColumnElement[Any]) -> ColumnElement[Any]:
    """The element of an array parameter at the place of the document of a row."""
    values: Any = Grouping(bind(f"p_{name}", type_=ARRAY(type_)))
    element: ColumnElement[Any] = values[place]
    return element


def unnested_rows() -> Subquery:
    """The parameters of `UrlRows` as rows with the types of the table, and their `place`."""
    columns = {
        "place": text_column_parameter("place"),
        "url_hash": array_column_parameter("url_hash", BigInteger()),
        "url": text_column_parameter("url"),
        "lastmod": array_column_parameter("lastmod", DateTime(timezone=True)),
        "changefreq": text_column_parameter("changefreq"),
        "priority": text_column_parameter("priority"),
        "extras": text_column_parameter("extras"),
        "fingerprint": array_column_parameter("fingerprint", BigInteger()),
        "lastmod_text": array_column_parameter("lastmod_text", Text()),
        "entry_digest": array_column_parameter("entry_digest", BigInteger()),
    }
    rows = func.unnest(*columns.values()).table_valued(*columns, name="listed").render_derived()
    place = cast(rows.c.place, Integer)
    return select(
        of_document("sitemap_ids", Uuid(), place).label("sitemap_id"),
        rows.c.url_hash,
        rows.c.url,
        rows.c.lastmod,
        rows.c.changefreq,
        cast(rows.c.priority, REAL).label("priority"),
        cast(rows.c.extras, JSONB).label("extras"),
        rows.c.fingerprint,
        rows.c.lastmod_text,
        func.nullif(rows.c.entry_digest, literal(0)).label("entry_digest"),
        place.label("place"),
    ).subquery("rows")


def unnested_keys() -> Subquery:
    """Keys of `sitemap_urls`: the parameters `p_place` and `p_url_hash`, both arrays, as rows."""
    columns = {
        "place": array_column_parameter("place", Integer()),
        "url_hash": array_column_parameter("url_hash", BigInteger()),
    }
    keys = func.unnest(*columns.values()).table_valued(*columns, name="keys").render_derived()
    return select(
        of_document("sitemap_ids", Uuid(), keys.c.place).label("sitemap_id"),
        keys.c.url_hash,
        keys.c.place,
    ).subquery("rows")
