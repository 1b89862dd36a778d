"""Entries matched whole, with CDATA and extensions, must be those of the strict parser."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.shape_documents import SHAPES, document
from siteatlas.scanner.reading.formats.fast_path import FastPath
from siteatlas.scanner.reading.formats.fast_path_items import without_sections
from tests.fixtures.reading_paths import (
    DATE,
    GAP,
    PATH,
    PREFIXES,
    URL,
    columns_of_both_paths,
    escaped,
)

FIELDS = {
    "image": ["loc", "title", "caption"],
    "news": ["publication", "publication_date", "title"],
    "video": ["thumbnail_loc", "title", "player_loc", "tag"],
}
VALUE = st.one_of(
    PATH, st.sampled_from(["", " a b ", "[x]", "]]", "a ]> b", "<b>", "a & b", "&amp;", "x" * 600])
).filter(lambda text: "]]>" not in text and "\r" not in text)
INFO = st.sampled_from(["", ' allow_embed="yes"', ' allow_embed="a&amp;b" autoplay="x"', ' a=""'])


@st.composite
def document_of_one_generator(draw):
    """Entries that differ in their values, in the number of items and in optional fields."""
    kinds = draw(st.lists(st.sampled_from([*FIELDS, "xhtml"]), unique=True, min_size=1, max_size=3))
    most = {kind: 1 if kind == "news" else draw(st.integers(1, 3)) for kind in kinds}
    tags = [f"{kind}:{name}" for kind in kinds for name in FIELDS.get(kind, ())]
    sections = draw(st.sets(st.sampled_from([*tags, "loc", "lastmod", "news:name"])))
    optional = draw(st.booleans())
    gap: str = draw(GAP)

    def leaf(tag: str, text: str, attributes: str = "") -> str:
        inside = f"<![CDATA[{text}]]>" if tag in sections else escaped(text, "names")
        return f"<{tag}{attributes}>{inside}</{tag}>"

    def field(kind: str, name: str) -> str:
        tag = f"{kind}:{name}"
        if name == "publication":
            return f"<{tag}>{gap}{leaf('news:name', draw(VALUE))}{gap}</{tag}>"
        if name == "tag":
            return gap.join(leaf(tag, draw(VALUE)) for _ in range(draw(st.integers(1, 3))))
        return leaf(tag, draw(VALUE), draw(INFO) if name == "player_loc" else "")

    def item(kind: str) -> str:
        if kind == "xhtml":
            href = escaped(draw(VALUE), "names")
            return f'<xhtml:link rel="alternate" hreflang="de" href="x{href}" />'
        fields = [
            field(kind, name)
            for name in FIELDS[kind]
            if name in ("loc", "title") or not optional or draw(st.booleans())
        ]
        return f"<{kind}:{kind}>{gap}{gap.join(fields)}{gap}</{kind}:{kind}>"

    def entry() -> str:
        parts = [leaf("loc", draw(URL)), leaf("lastmod", draw(DATE))]
        parts += [item(kind) for kind in kinds for _ in range(draw(st.integers(0, most[kind])))]
        return f"<url>{gap}{gap.join(parts)}{gap}</url>{gap}"

    return [entry() for _ in range(draw(st.integers(2, 8)))]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(document_of_one_generator(), st.integers(1, 4))
def test_entries_matched_whole_are_those_of_the_strict_parser(entries, size):
    """In several texts: what is CDATA is learned from the first one."""
    fast, strict = columns_of_both_paths(entries, size)
    assert fast == strict


USUAL = (
    "<url><loc>https://a.example/</loc><image:image><image:loc>x</image:loc>"
    "<image:title><![CDATA[t]]></image:title></image:image></url>"
)


def learned(text: str) -> FastPath:
    """What has read this text, and knows which of its values are CDATA."""
    whole = FastPath(PREFIXES)
    assert whole.match(without_sections(text) or "") is not None
    assert whole.match_with_sections(text) is None
    whole.learn_sections(text)
    assert whole.match_with_sections(text) is not None
    return whole


@pytest.mark.parametrize("name", [name for name, shape in SHAPES.items() if shape.kind == "pages"])
def test_entries_of_the_usual_shapes_are_matched_whole(name):
    text = document(name, 40).decode()
    text = text[text.index("<url>") : text.rindex("</urlset>")]
    entries = FastPath(PREFIXES).match(without_sections(text) or "")
    assert entries is not None
    assert len(entries.locs) == 40
    if "CDATA" in name:
        assert learned(text).match_with_sections(text) == entries


def test_an_entry_with_more_items_than_any_before_is_matched_whole_too():
    image = "<image:image><image:loc>https://a.example/i.jpg</image:loc></image:image>"
    whole = FastPath(PREFIXES)
    for count in (1, 3, 9, 2):
        text = f"<url><loc>https://a.example/</loc>{image * count}</url>"
        entries = whole.match(text)
        assert entries is not None
        assert [len((extras or {})["images"]) for extras in entries.extras] == [count]


def test_fields_that_were_learned_in_vain_do_not_change_how_entries_are_matched():
    """An entry with too many items for a pattern has a field that the others do not have."""
    image = "<image:image><image:loc>https://a.example/i.jpg</image:loc>{}</image:image>"
    usual = f"<url><loc>https://a.example/</loc>{image.format('')}</url>"
    many = image.format("<image:title>t</image:title>") * 40
    whole = FastPath(PREFIXES)
    first = whole.match(usual)
    assert first is not None
    assert whole.match(f"<url><loc>https://a.example/</loc>{many}</url>") is None
    assert whole.match(usual) == first


@pytest.mark.parametrize(
    "odd",
    [
        "text between two entries",
        "<url><loc>https://a.example/]]></loc></url>",
        "<url><loc>https://a.example/</loc><lastmod>2026]]></lastmod></url>",
        "<url><loc><![CDATA[https://a.example/]]></loc></url>",
        "<url><loc>https://a.example/</loc><image:image></image:image></url>",
        "<url><loc>https://a.example/</loc><image:image><image:loc>]]></image:loc></image:image></url>",
    ],
)
def test_what_is_written_in_another_way_is_not_matched(odd):
    whole = learned(USUAL)
    assert whole.match_with_sections(USUAL + odd + USUAL) is None


HOSTILE = ["<![CDATA[", "<![CDATA[]", "]", "]]", "]]>", "<image:image>", "<url>", "<url><loc>x"]


def test_hostile_sections_take_linear_time():
    """A quarter of a megabyte of each, where a search that starts anew at each takes a minute."""
    for piece in HOSTILE:
        for start in ("", "<image:image><image:loc>x</image:loc><image:title><![CDATA["):
            many = start + piece * (256 * 1024 // len(piece))
            whole = learned(USUAL)
            began = time.process_time()
            whole.match_with_sections(f"<url><loc>https://a.example/</loc>{many}</url>")
            assert time.process_time() - began < 1, piece
