"""Entries read by templates must be those of the strict parser, in whatever order they are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siteatlas.scanner.reading.entries import Extras
from siteatlas.scanner.reading.formats.fast_path import MAX_SAMPLE_CHARS, Templates
from siteatlas.scanner.reading.formats.urlset import read_samples
from tests.fixtures.reading_paths import ANNOUNCING, DATE, PATH, URL, columns_of, escaped

LOC = "<loc>https://a.example/{0}</loc>"
TITLE = "<image:title>Title {0}</image:title>"
PICTURE = "<image:loc>https://a.example/{0}.jpg</image:loc>"
ODD_SHAPES = {
    "fields in changing order": [
        f"<url>{LOC}<lastmod>2026-11-02</lastmod><priority>0.5</priority></url>",
        f"<url><priority>0.5</priority><lastmod>2026-11-02</lastmod>{LOC}</url>",
        f"<url><lastmod>2026-11-02</lastmod>{LOC}<changefreq>daily</changefreq></url>",
    ],
    "fields of images in changing order": [
        f"<url>{LOC}<image:image>{PICTURE}{TITLE}</image:image></url>",
        f"<url>{LOC}<image:image>{TITLE}{PICTURE}</image:image></url>",
    ],
    "images in two places": [
        f"<url><image:image>{PICTURE}</image:image>{LOC}<image:image>{PICTURE}</image:image></url>"
    ],
    "single quotes": [
        f"<url>{LOC}<xhtml:link rel='alternate' hreflang='de' href=\"https://a.example/de/{{0}}\"/></url>"
    ],
    "prices with a currency": [
        (
            f"<url>{LOC}<video:video><video:title>T {{0}}</video:title>"
            "<video:price currency='EUR'>{0}.99</video:price><video:price>1</video:price>"
            "</video:video></url>"
        )
    ],
    "an empty element inside a tag": [
        (
            f"<url>{LOC}<video:video><video:title>T {{0}}</video:title>"
            "<video:tag><video:description/></video:tag></video:video></url>"
        )
    ],
    "PageMap": [
        (
            f"<url>{LOC}<PageMap xmlns='http://www.google.com/schemas/sitemap-pagemap/1.0'>"
            "<DataObject type='document' id='x'><Attribute name='n'>N {0}</Attribute></DataObject>"
            "</PageMap></url>"
        )
    ],
    "mobile pages": [f"<url>{LOC}<mobile:mobile xmlns:mobile='m'/></url>"],
}


def templates() -> tuple[Templates, list[str]]:
    """Templates, and the samples that they had the strict parser read."""
    samples: list[str] = []

    def read(text: str) -> list[tuple[list[str], Extras | None]] | None:
        samples.append(text)
        return read_samples(ANNOUNCING, text)

    return Templates(read), samples


@pytest.mark.parametrize("shape", ODD_SHAPES)
def test_odd_shapes_are_read_by_templates_as_the_strict_parser_reads_them(shape):
    forms = ODD_SHAPES[shape]
    text = "".join(forms[number % len(forms)].format(number) for number in range(60))
    strict, *_ = columns_of(text + "</urlset>", [], fast=False, root=ANNOUNCING)
    found, samples = templates()
    entries = found.read(text)
    assert entries is not None
    assert list(entries.locs) == strict.urls
    assert (list(entries.extras) or [None] * 60) == strict.extras
    assert sum(sample.count("</url>") for sample in samples) == len(forms)


VALUE = st.one_of(PATH, st.sampled_from(["", " ", " a b ", "a &lt; b", "\x85x", "&#160;x"]))
MARKUPS = [form for forms in ODD_SHAPES.values() for form in forms]


@st.composite
def odd_document(draw):
    """Entries of some markups, whose values may be anything, also empty."""
    forms = draw(st.lists(st.sampled_from(MARKUPS), min_size=1, max_size=3))
    entries = []
    for _ in range(draw(st.integers(1, 10))):
        form = draw(st.sampled_from(forms))
        value = escaped(draw(VALUE), draw(st.sampled_from(["names", "numbers"])))
        form = form.replace("https://a.example/{0}</loc>", f"{escaped(draw(URL), 'names')}</loc>")
        form = form.replace("Title {0}", draw(st.sampled_from(["{0}", "T {0}"])))
        entries.append(form.replace("{0}", value).replace("2026-11-02", draw(DATE)))
    return "".join(entries)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(odd_document(), st.lists(st.integers(0, 3000), max_size=4))
def test_entries_of_templates_are_those_of_the_strict_parser(text, cuts):
    text += "</urlset>"
    fast = columns_of(text, cuts, fast=True, root=ANNOUNCING)
    assert fast == columns_of(text, [], fast=False, root=ANNOUNCING)


def test_a_value_that_is_empty_counts_as_absent():
    found, _ = templates()
    form = f"<url>{LOC}<image:image><image:title>{{1}}</image:title>{PICTURE}</image:image></url>"
    entries = found.read(form.format(1, "a") + form.format(2, " ") + form.format(3, "c"))
    assert entries is not None
    images = [extras["images"][0] for extras in entries.extras if extras]
    assert [image.get("title") for image in images] == ["a", None, "c"]


@pytest.mark.parametrize(
    "odd",
    [
        "<url><loc>https://a.example/</loc><loc>https://a.example/2</loc></url>",
        "<url><loc>https://a.example/</loc><x:y/></url>",
        "<url><loc>https://a.example/</loc><url></url></url>",
        "<g><url><loc>https://a.example/</loc></url></g>",
        "<url><loc>https://a.example/</loc><?x?></url>",
        "<url><loc>https://a.example/</loc><x></url>",
        "<url><loc>https://a.example/ > </loc></url>",
        "<url><loc>https://a.example/\ue000</loc></url>",
        '<url><loc>https://a.example/</loc><PageMap><DataObject type="&#57344;0&#57344;"/></PageMap></url>',
        '<url><loc>https://a.example/</loc><PageMap><DataObject type="&#xE000;99&#xe000;"/></PageMap></url>',
        '<url><loc>https://a.example/</loc><image:title> href="x" </image:title></url>',
        '<url><loc>https://a.example/</loc><xhtml:link rel="alternate" href=""/></url>',
        f"<url><loc>https://a.example/</loc><x>{'x' * 4097}</x></url>",
        '<url><loc>https://a.example/</loc><md change="deleted"/></url>',
    ],
)
def test_what_a_template_cannot_express_is_left_to_the_parser(odd):
    usual = "<url><loc>https://a.example/</loc></url>"
    found, _ = templates()
    assert found.read(usual) is not None
    assert found.read(odd + usual) is None


def test_entries_that_all_differ_are_left_to_the_parser():
    found, samples = templates()
    texts = [f"<url><loc>https://a.example/</loc><x{number}/></url>" for number in range(200)]
    assert found.read("".join(texts[:50])) is not None
    assert found.read("".join(texts)) is None
    assert sum(sample.count("</url>") for sample in samples) == 50


def test_a_document_with_ever_new_markup_leaves_the_templates_at_a_megabyte():
    found, samples = templates()
    for number in range(40):
        entry = f"<url>{LOC}<a b='{'x' * 60_000}{number}'/></url>".format(number)
        if found.read(entry) is None:
            break
    assert MAX_SAMPLE_CHARS < sum(map(len, samples)) < MAX_SAMPLE_CHARS + 61_000
    assert found.read(f"<url>{LOC}</url>") is None
