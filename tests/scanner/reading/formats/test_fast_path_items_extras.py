"""The fast path and the strict parser must give the same extras, whatever the document."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.shape_documents import SHAPES, document
from siteatlas.scanner.reading.formats.fast_path import MAX_REST_CHARS, FastPath
from tests.fixtures.reading_paths import (
    ANNOUNCING,
    DATE,
    GAP,
    IMAGES,
    LANGUAGES,
    PATH,
    PREFIXES,
    ROOT,
    URL,
    columns_of,
    escaped,
    plain,
)

VALUE = PATH.filter(lambda text: "\r" not in text)
RAW = VALUE.filter(lambda text: "]]>" not in text)
FIELDS = {
    "image": ["loc", "title", "caption", "geo_location", "license"],
    "news": ["publication", "publication_date", "title", "keywords"],
    "video": ["thumbnail_loc", "title", "description", "player_loc", "duration", "tag"],
}
ATTRIBUTES = ["", ' allow_embed="yes"', ' allow_embed="yes"  autoplay="a=&quot;1&quot;"']
COMMENT = st.sampled_from(
    ["<!-- note -->", "<!---->", "<!-- a-b & c -->", "<!-- <url><loc>no</loc></url> -->"]
)


@st.composite
def text_of_field(draw):
    """A value as generators write it: escaped, as CDATA, or as both."""
    style = draw(st.sampled_from(["names", "names", "numbers", "section", "mixed"]))
    if style == "section":
        return f"{draw(GAP)}<![CDATA[{draw(RAW)}]]>{draw(GAP)}"
    if style == "mixed":
        return f"{escaped(draw(VALUE), 'names')}<![CDATA[{draw(RAW)}<b>]]>"
    return escaped(draw(VALUE), style)


@st.composite
def field(draw, kind, name):
    tag = f"{kind}:{name}"
    if name == "publication":
        parts = [draw(field("news", part)) for part in ("name", "language") if draw(st.booleans())]
        return f"<{tag}>{draw(GAP).join(['', *parts, ''])}</{tag}>"
    if draw(st.integers(0, 5)) == 0 and name not in {"loc", "tag"}:
        return f"<{tag}/>"
    attributes = draw(st.sampled_from(ATTRIBUTES)) if name == "player_loc" else ""
    return f"<{tag}{attributes}>{draw(text_of_field())}</{tag}>"


@st.composite
def item(draw, kind):
    """Some fields of an image, of news or of a video, in their usual order."""
    names = [name for name in FIELDS[kind] if name == "loc" or draw(st.booleans())]
    if "tag" in names:
        names += ["tag"] * draw(st.integers(0, 2))
    fields = [draw(field(kind, name)) for name in names]
    return f"<{kind}:{kind}>{draw(GAP).join(['', *fields, ''])}</{kind}:{kind}>"


@st.composite
def link(draw, order):
    values = {
        "rel": 'rel="alternate"',
        "hreflang": f'hreflang="{draw(st.sampled_from(["de", "x-default", " en "]))}"',
        "href": f'href="x{escaped(draw(VALUE), "names")}"',
    }
    end = draw(st.sampled_from(["/>", " />", "></xhtml:link>"]))
    return f"<xhtml:link {' '.join(values[name] for name in order)}{end}"


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
        "<image:image>text<image:loc>x</image:loc></image:image>text",
        "<image:image><image:caption>c</image:caption><image:loc>x</image:loc></image:image>",
        "<image:image><image:loc>x</image:loc><image:loc>y</image:loc></image:image>",
        "<image:image><image:loc>x</image:loc><image:tag>y</image:tag></image:image>",
        "<image:image><image:loc>x<image:loc>y</image:loc></image:loc></image:image>",
        "<image:image><image:loc a='1'>x</image:loc></image:image>",
        "<image:image<!-- c -->><image:loc>x</image:loc></image:image>",
        "<image:image><image:loc<![CDATA[>]]></image:loc></image:image>",
        "<image:image><image:loc><!-- c --><![CDATA[x]]></image:loc></image:image>",
        "<image:image><image:loc>x<!-- c --></image:loc></image:image>",
        "<image:image><image:loc><![CDATA[x]]>y</image:loc></image:image>",
        "<image:image><image:loc><![CDATA[> <!-- c --> <b>]]></image:loc></image:image>",
        "<image:image><image:loc>x</image:loc></image:image><!-- ><![CDATA[ --> ]]>",
        "<image:image><image:loc>x</image:loc></image:image><!-- a -- b -->",
        '<xhtml:link rel="alternate" hreflang="" href="https://a.example/"/>',
        '<xhtml:link rel="other" hreflang="de" href="https://a.example/"/>',
        '<xhtml:link rel="alternate" hreflang="de" href="> <!-- c --> <"/>',
        '<xhtml:link rel="alternate" hreflang="de" href="x" <![CDATA[/>]]></xhtml:link>',
        "<xhtml:li<image:image><image:loc>x</image:loc></image:image>nk rel='alternate'/>",
        f"<image:image><image:loc>x</image:loc><image:title>{'t' * 5000}</image:title></image:image>",
        '<xhtml:link rel="alternate" media="handheld" href="https://m.a.example/"/>',
        '<xhtml:link hreflang="de" rel="alternate" href="https://a.example/de"/>',
        "<xhtml:link rel='alternate' hreflang='de' href='https://a.example/de'/>",
        '<xhtml:link rel="alternate" hreflang="de" href="https://a.example/de"></xhtml:link>',
        '<xhtml:link rel="alternate" hreflang="de" href="a" href="b"/>',
        "<video:video></video:video>",
        '<video:video><video:price currency="EUR">1</video:price></video:video>',
        '<video:video><video:title a="1" a="2">t</video:title></video:video>',
        '<video:video><video:title xmlns="x">t</video:title></video:video>',
        '<video:video><video:title x="1">t</video:title><video:title_x>2</video:title_x></video:video>',
        "<video:video>" + "<video:tag>t</video:tag>" * 70 + "</video:video>",
        "<news:news><news:title>one</news:title></news:news>" * 2,
        "<news:news><news:publication>text</news:publication></news:news>",
        "<news:news><news:publication><news:tag>t</news:tag></news:publication></news:news>",
        "<mobile:mobile/>",
        "<!-- note -->",
    ]
)


@st.composite
def rich_document(draw):
    """Entries with extras in the same place, as generators write them; in one of three, an oddity."""
    place, blank = draw(st.integers(0, 2)), draw(GAP)
    order = draw(st.permutations(["rel", "hreflang", "href"]))
    kinds = draw(st.sets(st.sampled_from(["image", "video", "link"]), min_size=1))
    parts = [link(order) if kind == "link" else item(kind) for kind in sorted(kinds)]
    items = st.lists(st.one_of(parts), max_size=3)
    with_news, with_comments = draw(st.booleans()), draw(st.booleans())

    def entry(items: list[str]) -> str:
        fields = [f"<loc>{escaped(draw(URL), 'names')}</loc>", f"<lastmod>{draw(DATE)}</lastmod>"]
        fields[place:place] = [draw(item("news")), *items] if with_news else items
        comments = [draw(COMMENT)] if with_comments and draw(st.booleans()) else []
        return "".join([*comments, f"<url>{blank}{blank.join(fields)}{blank}", *comments, "</url>"])

    entries = [entry(draw(items)) for _ in range(draw(st.integers(1, 5)))]
    if draw(st.integers(0, 2)) == 0:
        entries.insert(draw(st.integers(0, 4)), entry([*draw(items), draw(ODD_EXTRAS)]))
    return "".join(entries)


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
@settings(max_examples=200, deadline=None)
@given(
    rich_document(),
    st.lists(st.integers(0, 3000), max_size=6),
    st.one_of(st.just(ANNOUNCING), st.just(ANNOUNCING), st.sampled_from(OTHER_ROOTS)),
)
def test_both_ways_give_the_same_extras(text, cuts, root):
    text += "</urlset>"
    fast = columns_of(text, cuts, fast=True, root=root)
    assert fast == columns_of(text, [], fast=False, root=root)


def test_an_escaped_start_of_a_cdata_section_is_text_beside_a_real_one():
    image = "<image:image><image:loc><![CDATA[https://a.example/i.jpg]]></image:loc></image:image>"
    text = f"<url>{image}<loc>https://a.example/&lt;![CDATA[</loc></url></urlset>"
    columns, problems, *_ = columns_of(text, [], fast=False, root=ANNOUNCING)
    assert columns.urls == ["https://a.example/<![CDATA["]
    assert columns.extras == [{"images": [{"loc": "https://a.example/i.jpg"}]}]
    assert problems == {}


@pytest.mark.parametrize(
    "section",
    [f"<![CDATA[<{'x' * 300}>]]>", f"<!-- <{'x' * 300} -->", "<!--" + ' a="1"' * 300 + " -->"],
    ids=["name in CDATA", "name in a comment", "attributes in a comment"],
)
def test_what_the_parser_refuses_to_see_is_refused_in_both_ways(section):
    text = f"<url><loc>https://a.example/</loc><lastmod>2026{section}</lastmod></url></urlset>"
    fast = columns_of(text, [], fast=True)
    assert fast == columns_of(text, [], fast=False)
    assert fast[-1] == "xml_limits"


def assert_same(fast, strict):
    """The same results; of a broken document, the same as far as the parser came."""
    (columns, *others), (expected, problems, _, error) = fast, strict
    if error is None:
        assert (columns, *others) == strict
    else:
        parsed = len(expected.urls) - problems.get("entry_salvaged", 0)
        assert others[-1] == error
        assert columns.urls[:parsed] == expected.urls[:parsed]
        assert columns.extras[:parsed] == expected.extras[:parsed]


TOKENS = st.sampled_from(
    [
        *("<!--", "-->", "<![CDATA[", "]]>", "<!-- c -->", "<![CDATA[x]]>", "<image:caption/>"),
        *("<", ">", '"', "/", "\r", "&", "&lt;", "&#60;", "&amp;", "\x85", "\u2003", " ", "]", "-"),
        *("</url>", "<url>", "<image:image>", "</image:image>", "<image:loc>x</image:loc>"),
        *(' a="1"', "<video:tag>", "<video:tag>x</video:tag>", "]]", "--", "text"),
    ]
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    rich_document(),
    st.lists(st.tuples(st.integers(0, 2000), TOKENS), min_size=1, max_size=3),
    st.lists(st.integers(0, 3000), max_size=3),
)
def test_both_paths_give_the_same_whatever_is_in_the_wrong_place(text, insertions, cuts):
    for place, token in insertions:
        at = place % (len(text) + 1)
        text = text[:at] + token + text[at:]
    text += "</urlset>"
    fast = columns_of(text, cuts, fast=True, root=ANNOUNCING)
    assert_same(fast, columns_of(text, cuts, fast=False, root=ANNOUNCING))


@pytest.mark.full
@pytest.mark.slow
def test_the_comparison_of_extras_is_about_documents_that_stay_on_the_fast_path():
    stayed = []

    @settings(max_examples=200, deadline=None, derandomize=True, database=None)
    @given(rich_document())
    def look(text):
        entries = FastPath(PREFIXES).feed(text)
        stayed.append(entries is not None and any(entries.extras))

    look()
    assert stayed.count(True) > len(stayed) / 3


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
def test_usual_images_and_languages_stay_on_the_fast_path(shape):
    text = "".join(map(shape.format, range(20)))
    entries = FastPath(("image", "xhtml")).feed(text)
    assert entries is not None
    assert len(entries.extras) == 20
    strict, *_ = columns_of(text + "</urlset>", [], fast=False, root=ANNOUNCING)
    assert list(entries.extras) == strict.extras


def test_entries_without_extras_stay_on_the_fast_path_of_those_with():
    fast_path = FastPath(("image", "xhtml"))
    assert fast_path.feed(SHOP.format(1) + plain(2) + SHOP.format(2)) is not None
    first = fast_path.feed(plain(3))
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
    ids=["many images", "many fields", "long value"],
)
def test_extras_that_may_meet_a_limit_are_left_to_the_parser(many):
    text = f"<url><loc>https://a.example/</loc>{many}</url>"
    assert FastPath(("image", "xhtml")).feed(text) is None


def test_prefixes_that_are_not_announced_are_left_to_the_parser():
    assert FastPath(()).feed(SHOP.format(1)) is None
    assert FastPath(("xhtml",)).feed(SHOP.format(1)) is None


@pytest.mark.parametrize("name", [name for name, shape in SHAPES.items() if shape.kind == "pages"])
def test_the_usual_shapes_stay_on_the_fast_path_to_the_last_entry(name):
    text = document(name, 60).decode()
    start, end = text.index(">", text.index("<urlset")) + 1, text.rindex("</urlset>")
    fast_path = FastPath(PREFIXES)
    half = text.index("</url>", len(text) // 2)
    read = [fast_path.feed(part) for part in (text[start:half], text[half:end])]
    found = [part for part in read if part is not None]
    assert len(found) == len(read)
    strict, *_ = columns_of(text[start:], [], fast=False, root=ANNOUNCING)
    extras = [extra for part in found for extra in part.extras]
    assert (extras or [None] * 60) == strict.extras
    assert sum(len(part.locs) for part in found) == len(strict.urls) == 60


HOSTILE = [
    "<!--",
    "<!-- -",
    "- ",
    "<![CDATA[",
    "<![CDATA[]",
    "<![CDATA[x]]>",
    "<image:image>",
    "<image:image><image:loc>x</image:loc>",
    "<image:image><image:loc>",
    "<image:loc>x</image:loc>",
    "<news:news><news:publication>",
    "<video:video><video:tag>x</video:tag>",
    "<video:tag>x</video:tag>",
    '<video:title a="1"',
    ' a="1"',
    "<xhtml:link rel=",
    '<xhtml:link rel="alternate" hreflang="de" href="',
    '"',
    "]]>",
    " ",
]
STARTS = ["", "<!--", "<![CDATA[", "<image:image>", "<video:video><video:title", "<xhtml:link"]
ENTRY = (
    "<url><loc>https://a.example/</loc><image:image><image:loc>x</image:loc></image:image>"
    '<xhtml:link rel="alternate" hreflang="de" href="x"/><news:news><news:title>t</news:title>'
    '</news:news><video:video><video:title a="1">t</video:title></video:video></url>'
)


@pytest.mark.parametrize("ends", ["", "]]>", "-->", "]]></image:loc></image:image>"])
@pytest.mark.parametrize("start", STARTS)
def test_nothing_hostile_takes_more_than_linear_time(start, ends):
    """A quarter of a megabyte of each, where a search that starts anew at each takes a minute."""
    for piece in HOSTILE:
        many = start + piece * (MAX_REST_CHARS // len(piece)) + ends
        text = f"{ENTRY}<url><loc>https://a.example/</loc>{many}</url>"
        began = time.process_time()
        FastPath(PREFIXES).feed(text)
        assert time.process_time() - began < 1, piece


def test_thousands_of_different_fields_are_not_learned():
    names = ["".join(pair) for pair in itertools.product("abcdefgh_", repeat=4)]
    fields = "".join(f"<image:{name}>x</image:{name}>" for name in names[:1000])
    text = f"<url><loc>https://a.example/</loc><image:image>{fields}</image:image></url>"
    began = time.process_time()
    assert FastPath(PREFIXES).feed(text * 10) is None
    assert time.process_time() - began < 1
