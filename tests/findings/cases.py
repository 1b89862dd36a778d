"""For each rule that lint judges, what breaks it and what nearly does.

A case is a document, several files by their names, or the pages of a site.
"""

from __future__ import annotations

import gzip
from typing import NamedTuple

from aiohttp import web

Files = dict[str, bytes]
Pages = dict[str, object]

NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"
GOOGLE = "http://www.google.com/schemas/sitemap"
EXTENSIONS = (
    f'xmlns:image="{GOOGLE}-image/1.1" xmlns:video="{GOOGLE}-video/1.1" '
    f'xmlns:news="{GOOGLE}-news/0.9" xmlns:xhtml="http://www.w3.org/1999/xhtml"'
)
DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'
SITE = "https://www.example.com"


class Case(NamedTuple):
    """A fault and what is nearly one."""

    fault: Files
    near: Files


def around(entries: str, first: str = DECLARATION, root: str = "urlset") -> str:
    return f'{first}<{root} xmlns="{NAMESPACE}" {EXTENSIONS}>\n{entries}</{root}>\n'


def page(loc: str = f"{SITE}/a", more: str = "") -> str:
    return f"<url><loc>{loc}</loc>{more}</url>\n"


def child(loc: str, more: str = "<lastmod>2026-01-01</lastmod>") -> str:
    return f"<sitemap><loc>{loc}</loc>{more}</sitemap>\n"


def pages_of(count: int, more: str = "") -> str:
    return "".join(page(f"{SITE}/page/{number}", more) for number in range(count))


def document(fault: str | bytes, near: str | bytes, name: str = "sitemap.xml") -> Case:
    def data(content: str | bytes) -> bytes:
        return content if isinstance(content, bytes) else content.encode()

    return Case({name: data(fault)}, {name: data(near)})


def entry(fault: str, near: str) -> Case:
    """Two documents with one entry each, and an ordinary one before it."""
    first = page(f"{SITE}/first")
    return document(around(first + fault), around(first + near))


def loc(fault: str, near: str) -> Case:
    return entry(page(fault), page(near))


def inside(fault: str, near: str) -> Case:
    return entry(page(more=fault), page(more=near))


def index(fault: str, near: str) -> Case:
    return document(around(fault, root="sitemapindex"), around(near, root="sitemapindex"))


def robots(fault: str, near: str) -> Case:
    return document(fault, near, "robots.txt")


def dated(dates: list[str]) -> str:
    return "".join(
        page(f"{SITE}/page/{number}", f"<lastmod>{date}</lastmod>")
        for number, date in enumerate(dates)
    )


def article(
    name: str = "The Example",
    language: str = "en",
    date: str = "2026-06-30T08:00:00Z",
    title: str = "Something happened",
) -> str:
    return (
        f"<news:news><news:publication><news:name>{name}</news:name>"
        f"<news:language>{language}</news:language></news:publication>"
        f"<news:publication_date>{date}</news:publication_date>"
        f"<news:title>{title}</news:title></news:news>"
    )


def articles(count: int) -> str:
    return "".join(page(f"{SITE}/news/{number}", article()) for number in range(count))


def video(more: str = "", content: str = f"{SITE}/a.mp4", title: str = "A film") -> str:
    return (
        f"<video:video><video:thumbnail_loc>{SITE}/a.jpg</video:thumbnail_loc>"
        f"<video:title>{title}</video:title><video:description>About it</video:description>"
        f"<video:content_loc>{content}</video:content_loc>{more}</video:video>"
    )


def image(loc: str = f"<image:loc>{SITE}/a.jpg</image:loc>") -> str:
    return f"<image:image>{loc}</image:image>"


def alternates(*links: tuple[str, str]) -> str:
    return "".join(
        f'<xhtml:link rel="alternate" hreflang="{code}" href="{href}"/>' for code, href in links
    )


EN, DE, FR = ("en", f"{SITE}/en"), ("de", f"{SITE}/de"), ("fr", f"{SITE}/fr")
ONE = around(page())
LONG = f"{SITE}/" + "x" * (2048 - len(SITE) - 1)

CASES: dict[str, Case] = {
    "sitemap-empty-response": document("", around(page())),
    "sitemap-is-html": document("<!DOCTYPE html><html><body>Sorry</body></html>", ONE),
    "gzip-corrupt": document(
        gzip.compress(ONE.encode())[:30] + b"\xff" * 60,
        gzip.compress(ONE.encode()),
        "sitemap.xml.gz",
    ),
    "gzip-trailing-garbage": document(
        gzip.compress(ONE.encode()) + b"garbage",
        gzip.compress(ONE.encode()) + gzip.compress(b" "),
        "sitemap.xml.gz",
    ),
    "document-unreadable": document(
        ONE.replace("<urlset", '<!DOCTYPE urlset [<!ENTITY a "b">]><urlset', 1),
        ONE.replace("<urlset", "<!DOCTYPE urlset><urlset", 1),
    ),
    "encoding-not-utf8": document(
        around(page(f"{SITE}/ä"), '<?xml version="1.0" encoding="ISO-8859-1"?>\n').encode(
            "latin-1"
        ),
        around(page(f"{SITE}/%C3%A4"), '<?xml version="1.0" encoding="ISO-8859-1"?>\n'),
    ),
    "encoding-lie": document(
        around(page(f"{SITE}/ä")).encode("latin-1"), around(page(f"{SITE}/ä"))
    ),
    "encoding-unknown": document(ONE.replace("UTF-8", "klingon"), ONE.replace("UTF-8", "utf8")),
    "encoding-conflict": document(
        b"\xef\xbb\xbf" + ONE.replace("UTF-8", "ISO-8859-1").encode(),
        b"\xef\xbb\xbf" + ONE.encode(),
    ),
    "xml-version": document(
        ONE.replace('version="1.0"', 'version="1.1"'), ONE.replace('version="1.0"', "version='1.0'")
    ),
    "leading-blanks": document(f"\n{ONE}", "\ufeff" + ONE),
    "xml-malformed": document(
        around(page().replace("</loc>", "</lock>") + page(f"{SITE}/b")),
        around(page(f"<![CDATA[{SITE}/</lock>]]>".replace("</lock>", "b"))),
    ),
    "document-cut": document(around(pages_of(3)).partition("</urlset>")[0], around(pages_of(3))),
    "content-after-end": document(f"{ONE}<p>", f"{ONE}<!-- made by hand -->\n"),
    "doctype-present": document(
        ONE.replace("<urlset", "<!DOCTYPE urlset><urlset", 1),
        ONE.replace("<urlset", "<!-- DOCTYPE --><urlset", 1),
    ),
    "bare-ampersand": loc(f"{SITE}/?a=1&b=2", f"<![CDATA[{SITE}/?a=1&b=2]]>"),
    "html-entity": inside(
        image(f"<image:loc>{SITE}/&auml;</image:loc>"),
        image(f"<image:loc>{SITE}/&#228;</image:loc>"),
    ),
    "forbidden-character": inside(
        image(f"<image:loc>{SITE}/a</image:loc><image:title>a\x0bb</image:title>"),
        image(f"<image:loc>{SITE}/a</image:loc><image:title>a\tb</image:title>"),
    ),
    "root-unknown": document("<sitemaps><url/></sitemaps>", ONE),
    "namespace-wrong": Case(
        {
            "sitemap.xml": ONE.replace(NAMESPACE, f"{GOOGLE}/0.84").encode(),
            "prefixed.xml": (
                f'<urlset xmlns:a="{NAMESPACE}"><url><loc>{SITE}/b</loc></url></urlset>'
            ).encode(),
        },
        {
            "sitemap.xml": ONE.replace(NAMESPACE, NAMESPACE.replace("http:", "https:")).encode(),
            "prefixed.xml": (
                f'<a:urlset xmlns:a="{NAMESPACE}"><a:url><a:loc>{SITE}/b</a:loc></a:url></a:urlset>'
            ).encode(),
        },
    ),
    "element-unknown": inside("<lastMod>2026-01-01</lastMod>", "<lastmod>2026-01-01</lastmod>"),
    "element-twice": inside(
        "<lastmod>2026-01-01</lastmod>\n<lastmod>2026-01-02</lastmod>",
        "<lastmod>2026-01-01</lastmod><!-- <lastmod>2026-01-02</lastmod> -->",
    ),
    "element-missing": entry(page(""), page()),
    "element-empty": inside("<lastmod></lastmod>", "<lastmod><![CDATA[2026-01-01]]></lastmod>"),
    "element-misplaced": inside(
        image() + f"<image:loc>{SITE}/b.jpg</image:loc>",
        image() + image(f"<image:loc>{SITE}/b.jpg</image:loc>"),
    ),
    "attribute-missing": entry(
        page(EN[1], f'<xhtml:link rel="alternate" href="{EN[1]}"/>'),
        page(EN[1], f'<xhtml:link rel="alternate" media="print" href="{EN[1]}"/>'),
    ),
    "attribute-invalid": inside(
        video('<video:restriction relationship="maybe">IE</video:restriction>'),
        video('<video:restriction relationship="allow">IE</video:restriction>'),
    ),
    "extension-outside-url": entry(image(), page(more=image())),
    "extras-cut": inside(
        video(f"<video:tag>{'x' * 5000}</video:tag>"),
        video(f"<video:tag>{'x' * 4000}</video:tag>"),
    ),
    "too-many-urls": document(around(pages_of(50_001)), around(pages_of(50_000))),
    "too-large": document(
        around("".join(page(f"{LONG[:-8]}{number:07}") for number in range(26_000))),
        around("".join(page(f"{LONG[:-8]}{number:07}") for number in range(24_000))),
    ),
    "near-the-limit": document(around(pages_of(45_000)), around(pages_of(44_999))),
    "sitemap-empty": Case(
        {"sitemap.xml": around("").encode()},
        {"sitemap.xml": ONE.encode(), "feed.rss": b"<rss><channel></channel></rss>"},
    ),
    "index-too-many": index(
        "".join(child(f"{SITE}/{number}.xml") for number in range(50_001)),
        "".join(child(f"{SITE}/{number}.xml") for number in range(50_000)),
    ),
    "index-cross-host": index(
        child(f"{SITE}/1.xml") + child(f"{SITE}/2.xml") + child("https://other.example/3.xml"),
        child(f"{SITE}/1.xml") + child(f"{SITE}/2.xml") + child("https://cdn.example.com/3.xml"),
    ),
    "index-child-twice": index(
        child(f"{SITE}/1.xml") + child(f"{SITE}/1.xml"),
        child(f"{SITE}/1.xml") + child(f"{SITE}/1.xml?page=2"),
    ),
    "index-lastmod-missing": index(child(f"{SITE}/1.xml", ""), child(f"{SITE}/1.xml")),
    "url-invalid": loc("https://www.exa mple.com/a", f"{SITE}/a"),
    "url-placeholder": loc("{{ page.url }}", f"{SITE}/%7B%7B-about-templates"),
    "url-relative": loc("/about", f"{SITE}/about"),
    "url-too-long": loc(LONG, LONG[:-1]),
    "url-over-1024": loc(LONG[:1025], LONG[:1024]),
    "url-over-8192": loc(f"{SITE}/{'x' * 8192}", f"{SITE}/{'x' * 8000}"),
    "url-control-character": loc(f"{SITE}/a&#133;b", f"{SITE}/a%20b"),
    "url-control-escaped": loc(f"{SITE}/a%0A", f"{SITE}/a%20%7E"),
    "url-escapes-not-utf8": loc(f"{SITE}/stra%DFe", f"{SITE}/stra%C3%9Fe/%E2%82%AC/%F0%9F%98%80"),
    "url-undecodable": loc(f"{SITE}/a\ufffdb", f"{SITE}/a%EF%BF%BDb"),
    "url-not-escaped": loc(f"{SITE}/straße", f"{SITE}/stra%C3%9Fe"),
    "url-double-escaped": entry(
        page(f"{SITE}/stra%25C3%259Fe"),
        page(f"{SITE}/100%25-wool") + page(f"{SITE}/?from=https%3A%2F%2Fa.example%2Fb%2520c"),
    ),
    "url-credentials": loc("https://user:word@www.example.com/a", f"{SITE}/a?user:word@x"),
    "url-fragment": loc(f"{SITE}/a#top", f"{SITE}/a%23top"),
    "url-scheme": loc("ftp://www.example.com/a", "HTTPS://www.example.com/a"),
    "url-other-host": loc("https://other.example/a", "https://shop.www.example.com/a"),
    "url-www-mismatch": loc("https://example.com/a", "https://www2.example.com/a"),
    "url-http-beside-https": loc("http://www.example.com/a", "https://www.example.com/http://a"),
    "url-private-host": loc("https://192.168.0.10/a", "https://www.example.com/192.168.0.10"),
    "url-twice": loc(f"{SITE}/first", f"{SITE}/First/second"),
    "url-twins": loc(f"{SITE}/First/", f"{SITE}/first/second"),
    "url-tracking-parameters": loc(f"{SITE}/a?utm_source=x", f"{SITE}/a?utmost=x"),
    "lastmod-invalid": inside("<lastmod>31.01.2026</lastmod>", "<lastmod>2026-01</lastmod>"),
    "lastmod-future": inside("<lastmod>2026-07-03</lastmod>", "<lastmod>2026-07-02</lastmod>"),
    "lastmod-missing": document(
        around(dated(["2026-01-01"] * 9) + pages_of(11)), around(pages_of(19))
    ),
    "lastmod-uniform": document(
        around(dated([f"2026-06-01T08:00:{second:02}Z" for second in range(20)])),
        around(dated([f"2026-06-01T08:0{number % 3}:00Z" for number in range(20)])),
    ),
    "changefreq-invalid": inside(
        "<changefreq>sometimes</changefreq>", "<changefreq>Daily</changefreq>"
    ),
    "priority-invalid": inside("<priority>1.1</priority>", "<priority>1.0</priority>"),
    "changefreq-ignored": inside(
        "<changefreq>daily</changefreq>", "<!-- <changefreq>daily</changefreq> -->"
    ),
    "priority-ignored": inside("<priority>0.5</priority>", "<!-- <priority>0.5</priority> -->"),
    "news-too-many": document(around(articles(1001)), around(articles(1000))),
    "news-stale": inside(
        article(date="2026-06-28T11:00:00Z"), article(date="2026-06-29T13:00:00Z")
    ),
    "news-field-missing": inside(article(title=""), article()),
    "news-language-invalid": inside(article(language="en-GB"), article(language="zh-cn")),
    "news-date-invalid": inside(article(date="today"), article(date="2026-06-30")),
    "news-tag-dropped": inside(
        article().replace("</news:news>", "<news:keywords>a</news:keywords></news:news>"), article()
    ),
    "image-too-many": inside(
        "".join(image(f"<image:loc>{SITE}/{n}</image:loc>") for n in range(1001)),
        "".join(image(f"<image:loc>{SITE}/{n}</image:loc>") for n in range(1000)),
    ),
    "image-loc-missing": inside(
        image() + image("<image:loc></image:loc>"),
        image(f"<image:loc><![CDATA[{SITE}/a]]></image:loc>"),
    ),
    "image-tag-dropped": inside(
        image(f"<image:loc>{SITE}/a</image:loc><image:license>{SITE}/l</image:license>"), image()
    ),
    "video-field-missing": inside(video(title=""), video()),
    "video-location-is-page": inside(video(content=f"{SITE}/a"), video(content=f"{SITE}/a?raw")),
    "video-tag-dropped": inside(
        video("<video:category>Films</video:category>"), video("<video:tag>films</video:tag>")
    ),
    "video-value-invalid": inside(
        video("<video:duration>28801</video:duration>"),
        video("<video:duration>28800</video:duration>"),
    ),
    "hreflang-code-invalid": entry(
        page(EN[1], alternates(EN, ("en-UK", f"{SITE}/uk"))),
        page(EN[1], alternates(EN, ("en-GB", f"{SITE}/uk"), ("x-default", SITE))),
    ),
    "hreflang-twice": entry(
        page(EN[1], alternates(EN, ("EN", f"{SITE}/us")))
        + page(f"{SITE}/us", alternates(EN, ("en-US", f"{SITE}/us"))),
        page(EN[1], alternates(EN, ("en-US", f"{SITE}/us")))
        + page(f"{SITE}/us", alternates(EN, ("en-US", f"{SITE}/us"))),
    ),
    "hreflang-no-self": entry(page(EN[1], alternates(DE)), page(EN[1], alternates(EN, DE))),
    "hreflang-no-return": Case(
        {
            "sitemap-en.xml": around(page(EN[1], alternates(EN, DE))).encode(),
            "sitemap-de.xml": around(page(DE[1], alternates(DE))).encode(),
        },
        {
            "sitemap-en.xml": around(page(EN[1], alternates(EN, DE))).encode(),
            "sitemap-de.xml": around(page(DE[1], alternates(EN, DE))).encode(),
        },
    ),
    "hreflang-sets-differ": entry(
        page(EN[1], alternates(EN, DE, FR))
        + "".join(page(one[1], alternates(EN, one)) for one in (DE, FR)),
        "".join(page(one[1], alternates(EN, DE, FR)) for one in (EN, DE, FR)),
    ),
    "hreflang-target-unlisted": entry(
        page(EN[1], alternates(EN, DE)),
        page(EN[1], alternates(EN, ("de", "https://www.example.de/"))),
    ),
    "sitemaps-identical": Case(
        {"sitemap-1.xml": ONE.encode(), "sitemap-2.xml": ONE.encode()},
        {"sitemap-1.xml": ONE.encode(), "sitemap-2.xml": ONE.encode() + b"\n"},
    ),
    "url-in-several-sitemaps": Case(
        {"sitemap-1.xml": ONE.encode(), "sitemap-2.xml": ONE.encode() + b"\n"},
        {"sitemap-1.xml": ONE.encode(), "sitemap-2.xml": around(page(f"{SITE}/A/")).encode()},
    ),
    "url-disallowed": Case(
        {"robots.txt": b"User-agent: *\nDisallow: /a", "sitemap.xml": ONE.encode()},
        {
            "robots.txt": b"User-agent: *\nDisallow: /a/",
            "sitemap.xml": ONE.encode(),
            "demo/robots.txt": b"User-agent: *\nDisallow: /",
        },
    ),
    "robots-sitemap-not-absolute": robots("Sitemap: /sitemap.xml", f"Sitemap: {SITE}/sitemap.xml"),
    "robots-sitemap-misspelt": robots(f"Site-map: {SITE}/s.xml", f"SITEMAP: {SITE}/s.xml"),
    "robots-too-large": robots("# " + "x" * 512_000, "# " + "x" * 511_998),
    "content-signal-invalid": robots(
        "Content-Signal: search=maybe", "Content-Signal: search=yes, ai-train=no"
    ),
}


def served(urlset: str) -> str:
    return urlset.replace(SITE, "{base}")


GOOD = served(around(pages_of(3)))
ROBOTS = "Sitemap: {base}/sitemap.xml\n"
HOME = "<html><body>Welcome</body></html>"


def status(code: int) -> object:
    return lambda _request: web.Response(status=code, text="no")


def redirect(target: str) -> object:
    return lambda _request: web.Response(status=301, headers={"Location": target})


def site(robots_txt: str = ROBOTS, **more: object) -> Pages:
    """The pages of a site; a key such as `b_xml` is the path `/b.xml`."""
    pages: Pages = {"/": HOME, "/robots.txt": robots_txt, "/sitemap.xml": GOOD}
    return pages | {f"/{name.replace('_', '.')}": answer for name, answer in more.items()}


def served_index(*names: str) -> str:
    entries = "".join(child(f"{SITE}/{name}") for name in names)
    return served(around(entries, root="sitemapindex"))


def without_sitemap(pages: Pages) -> Pages:
    return {path: answer for path, answer in pages.items() if path != "/sitemap.xml"}


OTHER = served(around(page(f"{SITE}/b")))
BOTH = ROBOTS + "Sitemap: {base}/b.xml\n"

SITES: dict[str, tuple[Pages, Pages]] = {
    "sitemap-missing": (without_sitemap(site("")), site("")),
    "sitemap-http-error": (site(BOTH, b_xml=status(410)), site(BOTH, b_xml=OTHER)),
    "sitemap-redirect-broken": (
        site(BOTH, b_xml=redirect("/b.xml")),
        site(BOTH, b_xml=redirect("/c.xml"), c_xml=OTHER),
    ),
    "sitemap-blocked-by-robots": (
        site("User-agent: Googlebot\nDisallow: /sitemap\n" + ROBOTS),
        site("User-agent: Googlebot\nDisallow: /sitemaps\n" + ROBOTS),
    ),
    "sitemap-refused-to-us": (site(BOTH, b_xml=status(403)), site(BOTH, b_xml=OTHER)),
    "sitemap-payment-required": (site(BOTH, b_xml=status(402)), site(BOTH, b_xml=OTHER)),
    "sitemap-redirected": (
        site("Sitemap: {base}/old.xml\n", old_xml=redirect("/sitemap.xml")),
        site(),
    ),
    "sitemap-not-in-robots": (
        without_sitemap(site(""))
        | {"/": '<html><link rel="sitemap" href="/b.xml"></html>', "/b.xml": OTHER},
        site(),
    ),
    "robots-names-dead-sitemap": (site(BOTH), site(BOTH, b_xml=OTHER)),
    "sitemap-orphan": (site(""), site()),
    "index-in-index": (
        site(sitemap_xml=served_index("a.xml"), a_xml=served_index("b.xml"), b_xml=OTHER),
        site(sitemap_xml=served_index("b.xml"), b_xml=OTHER),
    ),
    "index-cycle": (
        site(
            sitemap_xml=served_index("a.xml", "b.xml"),
            a_xml=served_index("sitemap.xml"),
            b_xml=OTHER,
        ),
        site(sitemap_xml=served_index("a.xml", "b.xml"), a_xml=served_index("b.xml"), b_xml=OTHER),
    ),
    "index-too-deep": (
        site(
            sitemap_xml=served_index("b.xml", "1.xml"),
            b_xml=OTHER,
            **{f"{depth}_xml": served_index(f"{depth + 1}.xml") for depth in range(1, 8)},
        ),
        site(sitemap_xml=served_index("b.xml"), b_xml=OTHER),
    ),
    "index-child-dead": (
        site(sitemap_xml=served_index("a.xml", "b.xml"), b_xml=OTHER),
        site(sitemap_xml=served_index("b.xml"), b_xml=OTHER),
    ),
    "url-outside-directory": (
        without_sitemap(site(""))
        | {"/": '<html><link rel="sitemap" href="/blog/b.xml"></html>', "/blog/b.xml": OTHER},
        without_sitemap(site("Sitemap: {base}/blog/b.xml\n")) | {"/blog/b.xml": OTHER},
    ),
    "robots-unreachable": (
        site() | {"/robots.txt": status(503)},
        site() | {"/robots.txt": status(404)},
    ),
}
