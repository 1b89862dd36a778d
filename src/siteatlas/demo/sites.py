"""The demo sites as data: the response of each path, and the expected result of a scan.

Every builder takes the address at which its site is served, because sitemaps contain absolute URLs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from siteatlas.demo.documents import (
    Entry,
    ServedDocument,
    alternates,
    day,
    gzipped,
    image,
    index_text,
    news,
    page,
    plain,
    urlset_text,
    xml,
)

MISSING = page("There is nothing here", status=404)
MATERIALS = ("oak", "walnut", "steel", "linen", "glass", "cork", "wool", "clay")
THINGS = ("table", "chair", "lamp", "shelf", "bowl", "rug", "mirror", "clock", "desk", "vase")
TOPICS = ("harbour", "forest", "market", "bridge", "garden", "museum", "railway", "island")


@dataclass(frozen=True, slots=True)
class SiteContent:
    """All answers of one site and the result that a scan of it must have.

    A site with `seconds_per_answer` answers one request at a time.
    """

    documents: Mapping[str, ServedDocument]
    otherwise: ServedDocument
    expected_urls: int
    expected_sitemaps: int
    expected_status: Literal["completed", "failed"] = "completed"
    expected_partial: bool = False
    expected_error_code: str | None = None
    seconds_per_answer: float = 0.0


@dataclass(frozen=True, slots=True)
class SitePlan:
    """A site before it has an address."""

    name: str
    description: str
    build: Callable[[str], SiteContent]


def robots(*lines: str) -> ServedDocument:
    """A robots.txt with these lines after the usual group."""
    return plain("\n".join(["User-agent: *", "Disallow: /basket/", "", *lines, ""]))


def shop(base: str) -> SiteContent:
    """1,200 URLs in compressed files under an index that lists another index."""
    files = {f"{base}/sitemaps/products-{part}.xml.gz": _products(base, part) for part in range(4)}
    others = {
        f"{base}/sitemaps/categories.xml.gz": _listing(base, "category", 180, "weekly", "0.6"),
        f"{base}/sitemaps/pages.xml.gz": _listing(base, "about", 20, "yearly", "0.2"),
    }
    nested = f"{base}/sitemaps/products-index.xml"
    top = {nested: day(1)} | {url: day(n) for n, url in enumerate(others)}
    documents = {
        "/": page("Oak and Linen, a shop"),
        "/robots.txt": robots(f"Sitemap: {base}/sitemap.xml"),
        "/sitemap.xml": xml(index_text(top)),
        "/sitemaps/products-index.xml": xml(index_text({url: day(3) for url in files})),
    }
    compressed = {
        url.removeprefix(base): gzipped(urlset_text(entries))
        for url, entries in (files | others).items()
    }
    return SiteContent(documents | compressed, MISSING, expected_urls=1200, expected_sitemaps=8)


def _products(base: str, part: int, count: int = 250) -> list[Entry]:
    numbers = range(part * count, (part + 1) * count)
    return [
        Entry(
            f"{base}/p/{MATERIALS[n % 8]}-{THINGS[n // 8 % 10]}-{n:04d}?ref=map&lang=en",
            f"{day(n)}T{n % 24:02d}:30:00+00:00",
            "daily",
            "0.8",
        )
        for n in numbers
    ]


def _listing(base: str, folder: str, count: int, changefreq: str, priority: str) -> list[Entry]:
    return [
        Entry(f"{base}/{folder}/{TOPICS[n % 8]}-{n:03d}", day(n), changefreq, priority)
        for n in range(count)
    ]


def magazine(base: str) -> SiteContent:
    """Two sitemaps named in robots.txt: articles in two languages with images, and news."""
    entries = [entry for number in range(120) for entry in _article(base, number)]
    latest = [
        Entry(
            f"{base}/news/{TOPICS[n % 8]}-{n:02d}",
            extensions=news(
                "The Harbour", f"News & notes, no. {n}", f"2026-11-14T{n % 24:02d}:00Z"
            ),
        )
        for n in range(30)
    ]
    documents = {
        "/": page("The Harbour, a magazine"),
        "/robots.txt": robots(
            f"Sitemap: {base}/sitemap-articles.xml  # everything",
            f"sitemap: {base}/sitemap-news.xml",
        ),
        "/sitemap-articles.xml": xml(urlset_text(entries)),
        "/sitemap-news.xml": xml(urlset_text(latest)),
    }
    return SiteContent(documents, MISSING, expected_urls=270, expected_sitemaps=2)


def _article(base: str, number: int) -> list[Entry]:
    slug = f"{TOPICS[number % 8]}-{number:03d}"
    versions = {language: f"{base}/{language}/{slug}" for language in ("en", "de")}
    extensions = alternates(versions) + image(f"{base}/images/{slug}.jpg")
    return [Entry(url, day(number), extensions=extensions) for url in versions.values()]


def text_list(base: str) -> SiteContent:
    """A list of addresses in a text file that nothing points to."""
    addresses = [f"{base}/paper/{number:02d}?page={number % 3}" for number in range(75)]
    documents = {
        "/": page("Papers of the reading room"),
        "/sitemap.txt": plain("\n".join([*addresses, ""])),
    }
    return SiteContent(documents, MISSING, expected_urls=75, expected_sitemaps=1)


def blog(base: str) -> SiteContent:
    """A blog as WordPress plugins serve it; robots.txt does not name the index."""
    counts = {"post": 140, "page": 12, "category": 18}
    children = {f"{base}/{kind}-sitemap.xml": day(n) for n, kind in enumerate(counts)}
    documents = {
        "/": page("Notes from the forest"),
        "/robots.txt": robots("Crawl-delay: 0"),
        "/sitemap_index.xml": xml(index_text(children, stylesheet="/main-sitemap.xsl")),
    }
    for kind, count in counts.items():
        entries = [
            Entry(f"{base}/{kind}/{TOPICS[n % 8]}-{n}/", f"{day(n)}T08:15:00+00:00")
            for n in range(count)
        ]
        documents[f"/{kind}-sitemap.xml"] = xml(urlset_text(entries))
    return SiteContent(documents, MISSING, expected_urls=170, expected_sitemaps=4)


def damaged(base: str) -> SiteContent:
    """One good sitemap, and one that has bare ampersands and ends in the middle of an entry."""
    good = [Entry(f"{base}/room/{number}", day(number)) for number in range(60)]
    bad = [Entry(f"{base}/find?colour=blue&size={number:02d}", day(number)) for number in range(40)]
    whole = urlset_text(bad).replace("&amp;", "&")
    documents = {
        "/": page("Rooms by the railway"),
        "/robots.txt": robots(f"Sitemap: {base}/rooms.xml", f"Sitemap: {base}/search.xml"),
        "/rooms.xml": xml(urlset_text(good)),
        "/search.xml": xml(whole[: whole.index("size=25")]),
    }
    return SiteContent(
        documents, MISSING, expected_urls=60 + 25, expected_sitemaps=2, expected_partial=True
    )


def without_sitemap(base: str) -> SiteContent:
    """A home page and nothing else."""
    return _content_without_sitemap({"/": page(f"A single page at {base}")}, MISSING)


def single_page_app(base: str) -> SiteContent:
    """An application that answers every path with its start page."""
    return _content_without_sitemap({}, page(f"The application at {base}"))


def archive(base: str) -> SiteContent:
    """48 sitemaps, one for each month of four years, from a server that takes its time."""
    months = [f"{year}-{month:02d}" for year in range(2022, 2026) for month in range(1, 13)]
    documents = {
        "/": page("The archive of the harbour master"),
        "/robots.txt": robots(f"Sitemap: {base}/sitemap.xml"),
        "/sitemap.xml": xml(index_text({f"{base}/{month}.xml": f"{month}-28" for month in months})),
    }
    for place, month in enumerate(months):
        entries = [
            Entry(f"{base}/log/{month}/{TOPICS[n % 8]}-{n:03d}", f"{month}-{n % 28 + 1:02d}")
            for n in range(120 + place * 37 % 80)
        ]
        documents[f"/{month}.xml"] = xml(urlset_text(entries))
    count = sum(120 + place * 37 % 80 for place in range(len(months)))
    return SiteContent(
        documents,
        MISSING,
        expected_urls=count,
        expected_sitemaps=len(months) + 1,
        seconds_per_answer=0.5,
    )


def _content_without_sitemap(
    documents: Mapping[str, ServedDocument], otherwise: ServedDocument
) -> SiteContent:
    """The content of a demo site without a sitemap, whose scan must fail."""
    return SiteContent(
        documents,
        otherwise,
        expected_urls=0,
        expected_sitemaps=0,
        expected_status="failed",
        expected_error_code="no_sitemap",
    )


PLANS = (
    SitePlan("shop", "robots.txt names an index, which lists an index and gzip files", shop),
    SitePlan("magazine", "two sitemaps in robots.txt: images and languages, and news", magazine),
    SitePlan("papers", "a plain-text sitemap that only its usual place gives away", text_list),
    SitePlan("blog", "a WordPress index that robots.txt does not mention", blog),
    SitePlan("rooms", "one good file and one broken: the scan is partial, and says so", damaged),
    SitePlan("card", "no sitemap at all: the scan fails and gives the reason", without_sitemap),
    SitePlan("app", "answers every path with a page: no sitemap is believed", single_page_app),
)
# Only in a demo that keeps serving: its scan lasts half a minute.
SLOW_PLAN = SitePlan("archive", "answers slowly: watch its scan while it runs", archive)
