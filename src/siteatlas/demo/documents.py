"""Generates the documents of the demo sites: sitemaps, indexes and pages, the same on every run.

`sites.py` decides what each site contains.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from xml.sax.saxutils import escape, quoteattr

XML_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
SITEMAP_NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"
EXTENSION_NAMESPACES = {
    "image": "http://www.google.com/schemas/sitemap-image/1.1",
    "news": "http://www.google.com/schemas/sitemap-news/0.9",
    "xhtml": "http://www.w3.org/1999/xhtml",
}
FIRST_DAY = date(2026, 1, 5)
DAYS_WITH_CHANGES = 300


@dataclass(frozen=True, slots=True)
class ServedDocument:
    """One answer of a demo site."""

    body: bytes
    content_type: str
    status: int = 200


@dataclass(frozen=True, slots=True)
class Entry:
    """One URL of a sitemap; `extensions` is XML written as it is."""

    url: str
    lastmod: str | None = None
    changefreq: str | None = None
    priority: str | None = None
    extensions: str = ""


def day(number: int) -> str:
    """A date that looks scattered and never changes."""
    return (FIRST_DAY + timedelta(days=number * 37 % DAYS_WITH_CHANGES)).isoformat()


def image(url: str) -> str:
    """An image of an entry."""
    return f"<image:image><image:loc>{escape(url)}</image:loc></image:image>"


def alternates(urls: Mapping[str, str]) -> str:
    """The same page in other languages."""
    return "".join(
        f'<xhtml:link rel="alternate" hreflang="{language}" href={quoteattr(url)}/>'
        for language, url in urls.items()
    )


def news(publication: str, title: str, published: str) -> str:
    """The news part of an entry."""
    return (
        f"<news:news><news:publication><news:name>{escape(publication)}</news:name>"
        f"<news:language>en</news:language></news:publication>"
        f"<news:publication_date>{published}</news:publication_date>"
        f"<news:title>{escape(title)}</news:title></news:news>"
    )


def urlset_text(entries: Iterable[Entry]) -> str:
    """A sitemap that lists pages."""
    body = "".join(_entry_text(entry) for entry in entries)
    used = {name: uri for name, uri in EXTENSION_NAMESPACES.items() if f"<{name}:" in body}
    extra = "".join(f' xmlns:{name}="{uri}"' for name, uri in used.items())
    return f'{XML_HEAD}<urlset xmlns="{SITEMAP_NAMESPACE}"{extra}>\n{body}</urlset>\n'


def _entry_text(entry: Entry) -> str:
    fields = {
        "loc": escape(entry.url),
        "lastmod": entry.lastmod,
        "changefreq": entry.changefreq,
        "priority": entry.priority,
    }
    text = "".join(f"<{name}>{value}</{name}>" for name, value in fields.items() if value)
    return f"  <url>{text}{entry.extensions}</url>\n"


def index_text(children: Mapping[str, str], stylesheet: str | None = None) -> str:
    """A sitemap index; `children` maps the URL of a sitemap to its date."""
    style = f'<?xml-stylesheet type="text/xsl" href="{stylesheet}"?>\n' if stylesheet else ""
    body = "".join(
        f"  <sitemap><loc>{escape(url)}</loc><lastmod>{lastmod}</lastmod></sitemap>\n"
        for url, lastmod in children.items()
    )
    root = f'<sitemapindex xmlns="{SITEMAP_NAMESPACE}">\n{body}</sitemapindex>\n'
    return XML_HEAD + style + root


def xml(text: str) -> ServedDocument:
    """XML sent as it is."""
    return ServedDocument(text.encode(), "application/xml; charset=utf-8")


def gzipped(text: str) -> ServedDocument:
    """A compressed file, as sites keep them on disk."""
    return ServedDocument(gzip.compress(text.encode(), mtime=0), "application/gzip")


def plain(text: str) -> ServedDocument:
    """Plain text, such as robots.txt."""
    return ServedDocument(text.encode(), "text/plain; charset=utf-8")


def page(title: str, status: int = 200) -> ServedDocument:
    """A web page for people."""
    html = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f'</title></head><body><h1>{escape(title)}</h1><div id="app"></div></body></html>\n'
    )
    return ServedDocument(html.encode(), "text/html; charset=utf-8", status)
