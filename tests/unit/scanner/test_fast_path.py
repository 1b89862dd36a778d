"""The fast lane and the strict parser must give the same entries, whatever the document."""

from __future__ import annotations

import itertools
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siteatlas.scanner.events import EntryColumns
from siteatlas.scanner.reading.formats.fast_path import FastPath
from siteatlas.scanner.reading.formats.urlset import Urlset
from siteatlas.scanner.reading.tally import Tally
from tests.fixtures.documents import FORMATS

ROOT = FORMATS["urlset"].start
IMAGES = ' xmlns:image="http://www.google.com/schemas/sitemap-image/1.1"'
LANGUAGES = ' xmlns:xhtml="http://www.w3.org/1999/xhtml"'
ANNOUNCING = ROOT[:-1] + IMAGES + LANGUAGES + ">"
BLANK = st.text(" \t\n\r", max_size=3)
GAP = st.text(" \t\n", max_size=2)
PATH = st.text(
    st.characters(
        codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"
    ),
    max_size=12,
)
URL = st.builds("https://a.example/{}".format, PATH)
ODD_URL = st.one_of(
    URL,
    PATH,
    st.sampled_from(["ftp://x/", "http://u@h/", "", "/relative", "//h/", "../x", "//a..b/"]),
    st.sampled_from(
        ["http://a..b/", "http://:80/x", "http://%zz/", "http://a:99999/", "http://[::1"]
    ),
)
BASE = "https://a.example/deep/s.xml"
DATE = st.sampled_from(["2026-11-02", "2026-11-02T10:00:00+01:00", "2026", "junk", " 2026-01-01 "])
FREQUENCY = st.sampled_from(["daily", "Weekly", "often"])
PRIORITY = st.sampled_from(["0.5", "1", "-1", "high"])


def escaped(text: str, style: str) -> str:
    if style == "numbers":
        return "".join(f"&#{ord(char)};" if char in "&<>'\"" else char for char in text)
    if style == "hexadecimal":
        return "".join(f"&#x{ord(char):x};" if char in "&<>/" else char for char in text)
    return escape(text, {"'": "&apos;", '"': "&quot;"})


VALUE = PATH.filter(lambda text: "\r" not in text)


@st.composite
def image(draw):
    style = draw(st.sampled_from(["names", "numbers"]))
    more = draw(st.lists(st.sampled_from(["loc", "title", "caption", "license"]), max_size=2))
    fields = [
        f"<image:{name}>{escaped(draw(VALUE), style)}</image:{name}>" for name in ["loc", *more]
    ]
    return f"<image:image>{draw(GAP).join(['', *fields, ''])}</image:image>"


@st.composite
def link(draw):
    language = f'hreflang="{draw(st.sampled_from(["de", "x-default", " en "]))}"'
    address = f'href="x{escaped(draw(VALUE), "names")}"'
    both = [language, address] if draw(st.booleans()) else [address, language]
    return f'<xhtml:link rel="alternate" {" ".join(both)}{draw(GAP)}/>'


ODD_EXTRAS = st.sampled_from(
    [
        "<image:image><image:loc><![CDATA[https://a.example/i.jpg]]></image:loc></image:image>",
        "<image:image><image:title>no address</image:title></image:image>",
        "<image:image/>",
        "<image:image><image:loc>x</image:loc><other/></image:image>",
        "<image:image><image:loc>x ]]&gt; y</image:loc></image:image>",
        "<image:image><image:loc>x ]]> y</image:loc></image:image>",
        "<image:image><image:loc>x</image:loc></image:image> ]]>",
        "<image:image>"
        + "<image:title></image:title>" * 64
        + "<image:loc>x</image:loc></image:image>",
        "<image:image><image:loc>a\r\nb</image:loc></image:image>",
        '<xhtml:link rel="alternate" hreflang="" href="https://a.example/"/>',
        '<xhtml:link rel="other" hreflang="de" href="https://a.example/"/>',
        f"<image:image><image:loc>x</image:loc><image:title>{'t' * 5000}</image:title></image:image>",
        '<xhtml:link rel="alternate" media="handheld" href="https://m.a.example/"/>',
        '<xhtml:link hreflang="de" rel="alternate" href="https://a.example/de"/>',
        "<xhtml:link rel='alternate' hreflang='de' href='https://a.example/de'/>",
        '<xhtml:link rel="alternate" hreflang="de" href="https://a.example/de"></xhtml:link>',
        '<xhtml:link rel="alternate" hreflang="de" href="a" href="b"/>',
        "<video:video><video:title>t</video:title></video:video>",
        "<!-- note -->",
    ]
)


@st.composite
def rich_document(draw):
    """Entries with extras in the same place, as generators write them; in one of three, an oddity."""
    place, blank = draw(st.integers(0, 2)), draw(GAP)

    def entry(items: list[str]) -> str:
        fields = [f"<loc>{escaped(draw(URL), 'names')}</loc>", f"<lastmod>{draw(DATE)}</lastmod>"]
        fields[place:place] = items
        return f"<url>{blank}{blank.join(fields)}{blank}</url>"

    items = st.lists(st.one_of(image(), link()), max_size=3)
    entries = [entry(draw(items)) for _ in range(draw(st.integers(1, 5)))]
    if draw(st.integers(0, 2)) == 0:
        entries.insert(draw(st.integers(0, 4)), entry([*draw(items), draw(ODD_EXTRAS)]))
    return "".join(entries)


@st.composite
def entry(draw, urls=ODD_URL):
    style = draw(st.sampled_from(["names", "names", "numbers", "hexadecimal"]))
    blank = draw(BLANK)
    fields = [f"<loc>{blank}{escaped(draw(urls), style)}{blank}</loc>"]
    for name, values in (("lastmod", DATE), ("changefreq", FREQUENCY), ("priority", PRIORITY)):
        if draw(st.booleans()):
            fields.append(f"<{name}>{draw(values)}</{name}>")
    if draw(st.integers(0, 9)) == 0:
        fields = draw(st.permutations(fields))
    return f"<url>{blank}{blank.join(fields)}{blank}</url>"


ODDITIES = st.sampled_from(
    [
        "]]>",
        "<url><loc>https://a.example/]]></loc></url>",
        "<url><loc>https://a.example/</loc><lastmod>2026]]></lastmod></url>",
        "<!-- note -->",
        "<url/>",
        "<url><loc/></url>",
        "<x/>",
        "text",
        "<?pi?>",
        "<url><loc><![CDATA[https://a.example/?a&b]]></loc></url>",
        '<url id="1"></url>',
        "<!-- <url><loc>https://a.example/no</loc></url> -->",
        "<url><lastmod></lastmod></url>",
        "<url><loc>https://a.example/1</loc><loc>https://a.example/2</loc></url>",
    ]
)


@st.composite
def body(draw):
    parts = draw(st.lists(st.one_of(entry(), entry(URL), entry(URL)), max_size=12))
    if draw(st.integers(0, 2)) == 0:
        parts.insert(draw(st.integers(0, len(parts))), draw(ODDITIES))
    return draw(BLANK).join(parts) + draw(BLANK) + "</urlset>" + draw(BLANK)


def columns_of(
    text: str, cuts: list[int], *, fast: bool, root: str = ROOT, base: str | None = None
) -> tuple[EntryColumns, dict[str, int], int, str | None]:
    tally, found = Tally(), EntryColumns()
    reader = Urlset(root, tally, base, fast=fast)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    read_results = [reader.feed(text[a:b]) for a, b in itertools.pairwise(edges)]
    read_results.append(reader.feed("", final=True))
    for read_result in read_results:
        found.urls += read_result.columns.urls
        found.lastmods += read_result.columns.lastmods
        found.changefreqs += read_result.columns.changefreqs
        found.priorities += read_result.columns.priorities
        found.extras += read_result.columns.extras
    error = read_results[-1].error
    return found, tally.counts(), tally.skipped, error.code if error else None


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(body(), st.lists(st.integers(0, 3000), max_size=8), st.sampled_from([None, BASE]))
def test_both_lanes_give_the_same_entries_wherever_the_document_is_split(text, cuts, base):
    fast = columns_of(text, cuts, fast=True, base=base)
    assert fast == columns_of(text, [], fast=False, base=base)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(body(), st.integers(0, 3000))
def test_both_lanes_give_the_same_entries_of_a_document_that_breaks_off(text, end):
    cut = text[:end]
    assert columns_of(cut, [], fast=True)[0] == columns_of(cut, [], fast=False)[0]


OTHER_ROOTS = [
    ROOT[:-1] + IMAGES + ">",
    ROOT[:-1] + LANGUAGES + ">",
    ROOT,
    ANNOUNCING.replace(IMAGES, IMAGES + IMAGES),
    ANNOUNCING.replace("sitemap/0.9", "sitemap-news/0.9"),
    f"<urlset data='{IMAGES}'>",
    f'<urlset xsi:schemaLocation="x" {IMAGES}>',
]


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(
    rich_document(),
    st.lists(st.integers(0, 3000), max_size=6),
    st.one_of(st.just(ANNOUNCING), st.just(ANNOUNCING), st.sampled_from(OTHER_ROOTS)),
)
def test_both_lanes_give_the_same_extras(text, cuts, root):
    text += "</urlset>"
    fast = columns_of(text, cuts, fast=True, root=root)
    assert fast == columns_of(text, [], fast=False, root=root)


@pytest.mark.slow
def test_the_comparison_of_extras_is_about_documents_that_stay_in_the_lane():
    stayed = []

    @settings(max_examples=200, deadline=None, derandomize=True, database=None)
    @given(rich_document())
    def look(text):
        entries = FastPath(("image", "xhtml")).feed(text)
        stayed.append(entries is not None and any(entries.extras))

    look()
    assert stayed.count(True) > len(stayed) / 3


@pytest.mark.parametrize("cuts", [[], [3], [40], [90]])
def test_entries_behind_a_root_that_closes_itself_are_salvaged_in_both_lanes(cuts):
    text = plain(3) + "</urlset>"
    for fast in (True, False):
        found, problems, _, error = columns_of(text, cuts, fast=fast, root="<urlset/>")
        assert found.urls == [f"https://a.example/{number}" for number in range(3)]
        assert (problems["entry_salvaged"], error) == (3, "xml_malformed")


def test_the_address_of_an_image_is_never_salvaged_as_a_page():
    picture = "<image:image><image:loc>https://a.example/i.jpg</image:loc></image:image>"
    text = plain(1) + f"<url>{picture}<loc>https://a.example/page</loc></url><url></broken>"
    found, problems, *_ = columns_of(text, [], fast=False, root=ANNOUNCING)
    assert problems.get("entry_salvaged", 0) <= 1
    assert found.urls == ["https://a.example/0", "https://a.example/page"]
    torn = f"<url></broken><url>{picture}<loc>https://a.example/page</loc></url>"
    found, problems, *_ = columns_of(torn, [], fast=False, root=ANNOUNCING)
    assert (found.urls, problems["entry_salvaged"]) == (["https://a.example/page"], 1)


SHOP = (
    "<url>\n<loc>https://a.example/{0}</loc>\n<lastmod>2026-11-02</lastmod>\n<image:image>\n"
    "<image:loc>https://a.example/{0}.jpg?w=1&amp;h=2</image:loc>\n<image:title>Größe &lt; {0}"
    "</image:title>\n</image:image>\n</url>\n"
)
LINK = '<xhtml:link rel="alternate" hreflang="{1}" href="https://a.example/{1}/{0}"/>\n'
SPOKEN = (
    "<url>\n<loc>https://a.example/{0}</loc>\n"
    + LINK.replace("{1}", "de")
    + LINK.replace("{1}", "en")
    + "<lastmod>2026-11-02</lastmod></url>\n"
)


@pytest.mark.parametrize("shape", [SHOP, SPOKEN], ids=["images", "languages"])
def test_usual_images_and_languages_stay_in_the_lane(shape):
    text = "".join(map(shape.format, range(20)))
    entries = FastPath(("image", "xhtml")).feed(text)
    assert entries is not None
    assert len(entries.extras) == 20
    strict, *_ = columns_of(text + "</urlset>", [], fast=False, root=ANNOUNCING)
    assert list(entries.extras) == strict.extras


def test_entries_without_extras_stay_in_the_lane_of_those_with():
    lane = FastPath(("image", "xhtml"))
    assert lane.feed(SHOP.format(1) + plain(2) + SHOP.format(2)) is not None
    first = lane.feed(plain(3))
    assert first is not None
    assert list(first.extras) == []


ADDRESS = "<image:loc>https://a.example/i.jpg</image:loc>"


@pytest.mark.parametrize(
    "many",
    [
        f"<image:image>{ADDRESS}</image:image>" * 900,
        f"<image:image>{ADDRESS}{'<image:title>t</image:title>' * 64}</image:image>",
        f"<image:image>{ADDRESS}<image:title>{'t' * 4097}</image:title></image:image>",
    ],
    ids=["large block", "many fields", "long value"],
)
def test_extras_that_may_meet_a_limit_are_left_to_the_parser(many):
    text = f"<url><loc>https://a.example/</loc>{many}</url>"
    assert FastPath(("image", "xhtml")).feed(text) is None


def test_prefixes_that_are_not_announced_are_left_to_the_parser():
    assert FastPath(()).feed(SHOP.format(1)) is None
    assert FastPath(("xhtml",)).feed(SHOP.format(1)) is None


def plain(count: int, order: tuple[str, ...] = ("loc", "lastmod")) -> str:
    values = {"lastmod": "2026-11-02", "changefreq": "daily", "priority": "0.5"}
    return "".join(
        "<url>"
        + "".join(
            f"<{name}>{values.get(name, f'https://a.example/{number}')}</{name}>" for name in order
        )
        + "</url>"
        for number in range(count)
    )


@pytest.mark.parametrize(
    "order",
    [
        ("loc",),
        ("loc", "priority"),
        ("loc", "lastmod", "changefreq", "priority"),
        ("lastmod", "loc"),
        ("priority", "changefreq", "lastmod", "loc"),
    ],
)
def test_a_plain_document_stays_in_the_lane_in_any_order_of_fields(order):
    entries = FastPath().feed(plain(20, order))
    assert entries is not None
    assert list(entries.locs) == [f"https://a.example/{number}" for number in range(20)]
    assert len(set(entries.lastmods)) == 1


@pytest.mark.parametrize(
    "loc", ["https://a.example/?a=1&amp;b=2", "https://a.example/ü", "/relative", "https://u@h/"]
)
def test_an_odd_url_does_not_end_the_lane(loc):
    lane = FastPath()
    assert lane.feed(plain(3)) is not None
    assert lane.feed(f"<url><loc>{loc}</loc></url>") is not None
    assert lane.feed(plain(3)) is not None


@pytest.mark.parametrize("odd", ["<!-- x -->", "<url/>", "<url><loc>x</loc><image/></url>"])
def test_what_is_not_plain_ends_the_lane_and_nothing_before_it_is_lost(odd):
    lane = FastPath()
    text = plain(2) + odd + plain(2)
    assert lane.feed(text) is None
    assert lane.rest == text


def test_text_without_the_end_of_an_entry_is_given_up_before_it_grows_large():
    lane = FastPath()
    assert lane.feed("<url><loc>" + "x" * 1000) is not None
    assert lane.feed("x" * 1_000_000) is None
