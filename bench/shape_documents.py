"""Makes one document of each usual shape of sitemap, as common generators write them.

The same on every run. Titles hold non-ASCII characters and references as often as real ones do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SEED = 1016
SITE = "https://www.shop.example"
FILES = "https://cdn.shop.example/files"
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
SITEMAP = ' xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
IMAGE = ' xmlns:image="http://www.google.com/schemas/sitemap-image/1.1"'
NEWS = ' xmlns:news="http://www.google.com/schemas/sitemap-news/0.9"'
VIDEO = ' xmlns:video="http://www.google.com/schemas/sitemap-video/1.1"'
XHTML = ' xmlns:xhtml="http://www.w3.org/1999/xhtml"'
LANGUAGES = ("en", "de", "fr", "es-MX", "pt-BR", "x-default")
WORDS = [
    "summer",
    "winter",
    "garden",
    "kitchen",
    "leather",
    "cotton",
    "classic",
    "modern",
    "travel",
    "family",
    "organic",
    "natural",
    "guide",
    "recipe",
    "review",
    "update",
    "market",
    "report",
    "season",
    "season2",
    "report3",
    "city",
    "river",
    "mountain",
    "Größe",
    "café",
    "O’Neill",
    "market's",
    "best",
    "&amp;",
    "new",
]


class Writer:
    """The parts that entries consist of, drawn from one sequence of random numbers."""

    def __init__(self) -> None:
        self._dice = random.Random(SEED)

    def number(self, most: int) -> int:
        """A whole number from 1 to `most`."""
        return self._dice.randint(1, most)

    def title(self, words: int) -> str:
        """Some words, escaped for XML."""
        return " ".join(self._dice.choices(WORDS, k=words))

    def raw_title(self, words: int) -> str:
        """The same as CDATA holds it."""
        return self.title(words).replace("&amp;", "&")

    def time(self) -> str:
        """A moment of the year, in UTC."""
        pick = self._dice.randint
        return (
            f"2026-{pick(1, 10):02d}-{pick(1, 28):02d}"
            f"T{pick(0, 23):02d}:{pick(0, 59):02d}:{pick(0, 59):02d}+00:00"
        )

    def often(self, percent: int) -> bool:
        """True in so many of a hundred cases."""
        return self._dice.randint(1, 100) <= percent


def _plain(writer: Writer, number: int) -> str:
    return (
        f"  <url>\n    <loc>{SITE}/posts/2026/{number}-{writer.number(99999)}/</loc>\n"
        f"    <lastmod>{writer.time()}</lastmod>\n    <changefreq>weekly</changefreq>\n"
        "    <priority>0.6</priority>\n  </url>\n"
    )


def _commented(writer: Writer, number: int) -> str:
    heading = f"  <!-- section {number // 25}: {writer.raw_title(3)} -->\n"
    return (heading if number % 25 == 0 else "") + _plain(writer, number)


def _yoast(writer: Writer, number: int) -> str:
    images = "".join(
        f"\t\t<image:image>\n\t\t\t<image:loc>{SITE}/wp-content/uploads/2026/{number}-{image}.jpg"
        "</image:loc>\n\t\t</image:image>\n"
        for image in range(writer.number(4))
    )
    return (
        f"\t<url>\n\t\t<loc>{SITE}/blog/article-{number}-{writer.number(99999)}/</loc>\n"
        f"\t\t<lastmod>{writer.time()}</lastmod>\n{images}\t</url>\n"
    )


def _old_yoast(writer: Writer, number: int) -> str:
    images = "".join(
        f"\t\t<image:image>\n\t\t\t<image:loc>{SITE}/wp-content/uploads/2017/{number}-{image}.jpg"
        f"</image:loc>\n\t\t\t<image:title><![CDATA[{writer.raw_title(4)}]]></image:title>\n"
        f"\t\t\t<image:caption><![CDATA[{writer.raw_title(7)}]]></image:caption>\n"
        "\t\t</image:image>\n"
        for image in range(writer.number(3))
    )
    return (
        f"\t<url>\n\t\t<loc>{SITE}/blog/article-{number}-{writer.number(99999)}/</loc>\n"
        f"\t\t<lastmod>{writer.time()}</lastmod>\n{images}\t</url>\n"
    )


def _links(number: int, languages: tuple[str, ...]) -> str:
    return "".join(
        f'    <xhtml:link rel="alternate" hreflang="{language}" '
        f'href="{SITE}/{language.lower()}/page-{number}"/>\n'
        for language in languages
    )


def _languages(writer: Writer, number: int) -> str:
    return (
        f"  <url>\n    <loc>{SITE}/en/page-{number}</loc>\n{_links(number, LANGUAGES)}"
        f"    <lastmod>{writer.time()}</lastmod>\n  </url>\n"
    )


def _news(writer: Writer, number: int) -> str:
    return _news_entry(writer, number, writer.title(8))


def _yoast_news(writer: Writer, number: int) -> str:
    return _news_entry(writer, number, f"<![CDATA[{writer.raw_title(8)}]]>")


def _news_entry(writer: Writer, number: int, title: str) -> str:
    return (
        f"\t<url>\n\t\t<loc>{SITE}/news/{number}-{writer.number(99999)}.html</loc>\n\t\t<news:news>\n"
        "\t\t\t<news:publication>\n\t\t\t\t<news:name>The Example Post</news:name>\n"
        "\t\t\t\t<news:language>en</news:language>\n\t\t\t</news:publication>\n"
        f"\t\t\t<news:publication_date>{writer.time()}</news:publication_date>\n"
        f"\t\t\t<news:title>{title}</news:title>\n"
        f"\t\t\t<news:keywords>{writer.title(3)}</news:keywords>\n\t\t</news:news>\n\t</url>\n"
    )


def _video(writer: Writer, number: int) -> str:
    tags = "".join(
        f"      <video:tag>{writer.title(1)}</video:tag>\n" for _ in range(writer.number(3))
    )
    return (
        f"  <url>\n    <loc>{SITE}/watch/{number}</loc>\n    <video:video>\n"
        f"      <video:thumbnail_loc>{FILES}/thumbs/{number}.jpg</video:thumbnail_loc>\n"
        f"      <video:title>{writer.title(5)}</video:title>\n"
        f"      <video:description>{writer.title(16)}</video:description>\n"
        f'      <video:player_loc allow_embed="yes">{SITE}/player?id={number}</video:player_loc>\n'
        f"      <video:duration>{writer.number(3600)}</video:duration>\n"
        f"      <video:publication_date>{writer.time()}</video:publication_date>\n"
        f"      <video:family_friendly>yes</video:family_friendly>\n{tags}"
        "    </video:video>\n  </url>\n"
    )


def _shopify(writer: Writer, number: int) -> str:
    return _shopify_entry(writer, number, "")


def _shopify_languages(writer: Writer, number: int) -> str:
    return _shopify_entry(writer, number, _links(number, LANGUAGES[:4]))


def _shopify_entry(writer: Writer, number: int, links: str) -> str:
    title = writer.title(5)
    caption = f"      <image:caption>{title}</image:caption>\n" if writer.often(20) else ""
    return (
        f"  <url>\n    <loc>{SITE}/products/item-{number}-{writer.number(99999)}</loc>\n"
        f"    <lastmod>{writer.time()}</lastmod>\n    <changefreq>daily</changefreq>\n{links}"
        f"    <image:image>\n      <image:loc>{FILES}/item-{number}.jpg?v={writer.number(10**9)}"
        f"</image:loc>\n      <image:title>{title}</image:title>\n{caption}"
        "    </image:image>\n  </url>\n"
    )


def _line(writer: Writer, number: int) -> str:
    return f"{SITE}/posts/2026/{number}-{writer.number(99999)}/\n"


def _item(writer: Writer, number: int) -> str:
    address = f"{SITE}/blog/article-{number}-{writer.number(99999)}/"
    return (
        f"<item>\n<title>{writer.title(6)}</title>\n<link>{address}</link>\n"
        f"<pubDate>Mon, {writer.number(28):02d} Sep 2026 10:00:00 +0000</pubDate>\n"
        f'<guid isPermaLink="false">{SITE}/?p={number}</guid>\n'
        f"<description><![CDATA[<p>{writer.raw_title(14)}</p>]]></description>\n</item>\n"
    )


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape: `kind` is `pages`, `text` or `feed`; `minimum` is our goal, in times Scrapy."""

    entry: Callable[[Writer, int], str]
    start: str
    end: str = "</urlset>\n"
    kind: str = "pages"
    minimum: float = 1.0


def _urlset(entry: Callable[[Writer, int], str], spaces: str = "", minimum: float = 1.0) -> Shape:
    return Shape(entry, f"{HEAD}<urlset{SITEMAP}{spaces}>\n", minimum=minimum)


RSS = f'{HEAD}<rss version="2.0"><channel><title>Shop</title><link>{SITE}/</link>\n'
SHAPES = {
    "plain": _urlset(_plain, minimum=5.0),
    "comments between entries": _urlset(_commented),
    "Yoast with images": _urlset(_yoast, IMAGE, 2.0),
    "older Yoast, CDATA captions": _urlset(_old_yoast, IMAGE, 1.3),
    "hreflang, 6 links": _urlset(_languages, XHTML, 2.0),
    "Shopify": _urlset(_shopify, IMAGE, 2.0),
    "Shopify, 4 languages": _urlset(_shopify_languages, IMAGE + XHTML, 2.0),
    "news": _urlset(_news, NEWS, 1.3),
    "Yoast News, CDATA titles": _urlset(_yoast_news, NEWS, 1.3),
    "video": _urlset(_video, VIDEO, 1.3),
    "RSS": Shape(_item, RSS, "</channel></rss>\n", "feed"),
    "text": Shape(_line, "", "", "text"),
}


def document(name: str, entries: int) -> bytes:
    """The document of one shape with so many entries."""
    shape, writer = SHAPES[name], Writer()
    body = "".join(shape.entry(writer, number) for number in range(entries))
    return (shape.start + body + shape.end).encode()


def write_documents(folder: Path, entries: int, names: list[str]) -> dict[str, Path]:
    """Write the documents of these shapes and return their files by name."""
    files = {}
    for number, name in enumerate(names):
        files[name] = folder / f"shape-{number:02d}.xml"
        files[name].write_bytes(document(name, entries))
    return files
