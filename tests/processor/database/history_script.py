"""A site through thirty scans, in which each rule that needs history is met."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from aiohttp import web

from tests.fixtures import documents
from tests.fixtures.changing_site import ChangingSite, Fault

DAY = 24 * 60
A = [f"/a{number:02d}" for number in range(40)]
B = [f"/b{number:02d}" for number in range(60)]
C = [f"/c{number:02d}" for number in range(40)]


@dataclass(frozen=True)
class Step:
    """What the site does before a scan, after how many minutes, and what the scan must say of it.

    New findings have a plus, resolved ones a minus; then the rule and the document.
    """

    does: Callable[[ChangingSite], object]
    says: frozenset[str] = frozenset()
    minutes: float = 61


def _begin(site: ChangingSite) -> None:
    site.add("/index.xml", children=["/a.xml", "/b.xml"])
    site.add("/a.xml", A)
    site.add("/b.xml", B)
    site.add("/feed.xml", [f"/n{number}" for number in range(10)], is_feed=True)
    site.named = ["/index.xml", "/feed.xml"]


def _nothing(_: ChangingSite) -> None:
    pass


def _redate(path: str, date: str, *pages: str) -> Callable[[ChangingSite], None]:
    def change(site: ChangingSite) -> None:
        served = site[path]
        served.put(*(pages or tuple(served.entries)), date=date)

    return change


def _fault(path: str, fault: Fault | None) -> Callable[[ChangingSite], None]:
    return lambda site: site.set_fault(fault, path)


def _robots(note: str) -> Callable[[ChangingSite], None]:
    def change(site: ChangingSite) -> None:
        site.robots_note = note

    return change


def _replace_feed(site: ChangingSite) -> None:
    site["/feed.xml"].entries = {}
    site["/feed.xml"].put(*(f"/m{number}" for number in range(10)))


def _drop(path: str, *pages: str) -> Callable[[ChangingSite], None]:
    return lambda site: site[path].drop(*pages)


def _put(path: str, *pages: str) -> Callable[[ChangingSite], None]:
    return lambda site: site[path].put(*pages)


def _keep(count: int) -> Callable[[ChangingSite], None]:
    """All but a few pages leave both sitemaps."""

    def change(site: ChangingSite) -> None:
        for path, pages in (("/a.xml", A), ("/b.xml", B)):
            site[path].entries = {}
            site[path].put(*pages[:count])

    return change


def _more(date: str, *, yearly: int = 0) -> Callable[[ChangingSite], None]:
    """Another index, whose children have this date; `now` is the time of the request.

    The first child has pages that say `yearly`, with another date each time. The second one has
    another ETag for each request. The third one dates all pages by the time of the request.
    """

    def change(site: ChangingSite) -> None:
        site.named = ["/index.xml", "/feed.xml", "/more.xml"]
        moment = now() if date == "now" else date
        site.pages["/more.xml"] = _index_of(site, moment)
        for number in range(6):
            pages = [f"<url><loc>{site.base}/m/{number}</loc></url>"]
            if number == 0:
                pages = [
                    f"<url><loc>{site.base}/y/{n}</loc><lastmod>2026-10-{1 + yearly:02d}</lastmod>"
                    "<changefreq>yearly</changefreq></url>"
                    for n in range(5)
                ]
            text = documents.urlset("".join(pages)).decode()
            site.pages[f"/m{number}.xml"] = _with_other_etags(text) if number == 1 else text

    return change


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def _index_of(site: ChangingSite, moment: str) -> str:
    children = "".join(
        f"<sitemap><loc>{site.base}/m{number}.xml</loc><lastmod>{moment}</lastmod></sitemap>"
        for number in range(6)
    )
    return f'<sitemapindex xmlns="{documents.NAMESPACE}">{children}</sitemapindex>'


def _with_other_etags(text: str) -> Callable[[web.BaseRequest], web.Response]:
    return lambda _: web.Response(text=text, headers={"ETag": f'"{uuid4()}"'})


def _dated_now(site: ChangingSite) -> None:
    site.named = [*site.named, "/now.xml"] if "/now.xml" not in site.named else site.named
    pages = (
        f"<url><loc>{site.base}/t/{n}</loc><lastmod>{now()}</lastmod></url>" for n in range(25)
    )
    site.pages["/now.xml"] = documents.urlset("".join(pages)).decode()


DEAD = frozenset({"+index-child-dead /index.xml", "+sitemap-http-error /b.xml"})
LOST = frozenset({"+mass-removal-held", "+sitemap-vanished /b.xml"})
ALIVE = frozenset(line.replace("+", "-") for line in DEAD)
TRAINING = [f"url-disallowed-ai-training {path}" for path in ("/a.xml", "/b.xml", "/feed.xml")]
EVERYONE = [f"url-disallowed{rest} /a.xml" for rest in ("", "-ai-search", "-ai-training")]


def says(*lines: str) -> frozenset[str]:
    return frozenset(lines)


def each(sign: str, lines: list[str]) -> frozenset[str]:
    return frozenset(f"{sign}{line}" for line in lines)


STEPS = [
    Step(_begin),
    Step(_nothing),
    Step(_redate("/a.xml", "2026-11-02"), says("+lastmod-without-change /a.xml")),
    Step(_redate("/a.xml", "2026-11-03"), says("+lastmod-untrusted /a.xml")),
    Step(_nothing),
    Step(
        _redate("/a.xml", "2026-11-04", "/a00"),
        says(
            "-lastmod-untrusted /a.xml", "-lastmod-without-change /a.xml", "-lastmod-uniform /a.xml"
        ),
    ),
    Step(_redate("/a.xml", "2026-11-05", "/a01")),
    Step(
        _redate("/a.xml", "2026-10-01", "/a03"),
        says("+lastmod-backwards /a.xml"),
    ),
    Step(_fault("/b.xml", Fault.SERVER_ERROR), DEAD | says("-lastmod-backwards /a.xml")),
    Step(_fault("/b.xml", None), ALIVE),
    Step(
        _robots("User-agent: GPTBot\nDisallow: /\n"), says("+robots-closed") | each("+", TRAINING)
    ),
    Step(_robots(""), says("+robots-opened", "-robots-closed") | each("-", TRAINING)),
    Step(
        _robots("User-agent: *\nDisallow: /a0\n"),
        says("+robots-closed", "-robots-opened") | each("+", EVERYONE),
    ),
    Step(_robots(""), says("+robots-opened", "-robots-closed") | each("-", EVERYONE)),
    Step(_replace_feed, says("+window-overrun /feed.xml")),
    Step(_put("/feed.xml", "/m99"), says("-window-overrun /feed.xml")),
    Step(_drop("/a.xml", "/a05")),
    Step(_put("/a.xml", "/a05")),
    Step(_drop("/a.xml", "/a05")),
    Step(_put("/a.xml", "/a05")),
    Step(_drop("/a.xml", "/a05")),
    Step(_put("/a.xml", "/a05"), says("+url-flapping /a.xml")),
    Step(
        _keep(5),
        says("+lastmod-backwards /a.xml", "+mass-removal-held", "-lastmod-uniform /b.xml"),
    ),
    Step(_nothing),
    Step(
        _more("2026-01-01"),
        says(
            "+changefreq-ignored /m0.xml",
            "+count-collapsed",
            "-lastmod-backwards /a.xml",
            "-mass-removal-held",
            "-robots-opened",
        ),
    ),
    Step(
        _more("now", yearly=1),
        says("+changefreq-contradicts-history /m0.xml", "+index-lastmod-always-now /more.xml"),
    ),
    Step(
        _more("2026-01-01", yearly=2),
        says("+index-lastmod-lags /more.xml", "-index-lastmod-always-now /more.xml"),
    ),
    Step(_nothing),
    Step(
        _dated_now,
        says(
            "+lastmod-uniform /now.xml",
            "+sitemap-validators-unstable /m1.xml",
            "-changefreq-contradicts-history /m0.xml",
            "-count-collapsed",
            "-index-lastmod-lags /more.xml",
        ),
    ),
    Step(_dated_now, says("+lastmod-without-change /now.xml")),
    Step(_dated_now, says("+lastmod-always-now /now.xml", "+lastmod-untrusted /now.xml")),
    Step(_fault("/b.xml", Fault.NOT_FOUND), DEAD | LOST),
]
