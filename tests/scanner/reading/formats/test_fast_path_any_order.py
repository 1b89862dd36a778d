"""Entries whose parts and fields change their order must be those of the strict parser too."""

from __future__ import annotations

import time
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siteatlas.scanner.reading.formats.fast_path import FastPath
from tests.fixtures.reading_paths import (
    DATE,
    GAP,
    PATH,
    PREFIXES,
    URL,
    columns_of_both_paths,
    escaped,
)

LOC = "<loc>https://a.example/</loc>"
IMAGE_FIELDS = [
    "<image:loc>https://a.example/i.jpg</image:loc>",
    "<image:title>t</image:title>",
    "<image:caption>c</image:caption>",
]
ITEMS = {
    "image": ["loc", "title", "caption"],
    "news": ["publication", "publication_date", "title"],
    "video": ["thumbnail_loc", "title", "title_x", "player_loc", "tag"],
}
VALUE = st.one_of(PATH, st.sampled_from(["", " ", " a b ", "a & b", "]]", "<b>"])).filter(
    lambda text: "]]>" not in text
)
INFO = st.sampled_from(["", ' allow_embed="yes"', ' allow_embed="a&amp;b" autoplay="x"', ' x=""'])
USUALLY = st.sampled_from([True] * 9 + [False])


def image(fields) -> str:
    return f"<image:image>{''.join(fields)}</image:image>"


@st.composite
def repeating(draw, parts):
    """The parts in any order, sometimes one of them twice."""
    more = [] if not parts or draw(USUALLY) else [draw(st.sampled_from(parts))]
    return draw(st.permutations(parts + more))


@st.composite
def document_in_changing_order(draw):
    """Entries that differ in the order of all that they have; some have a part twice."""
    kinds = draw(st.lists(st.sampled_from([*ITEMS, "xhtml"]), unique=True, max_size=2))
    sections = draw(st.sets(st.sampled_from(["loc", "image:title", "news:title", "video:tag"])))
    arrange = repeating if draw(st.booleans()) else st.permutations
    gap: str = draw(GAP)

    def shuffled(parts: list[str]) -> str:
        return gap.join(draw(arrange(parts)))

    def leaf(tag: str, text: str, attributes: str = "") -> str:
        if not text and draw(st.booleans()):
            return f"<{tag}{attributes}/>"
        inside = f"<![CDATA[{text}]]>" if tag in sections else escaped(text, "names")
        return f"<{tag}{attributes}>{inside}</{tag}>"

    def field(kind: str, name: str) -> str:
        tag = f"{kind}:{name}"
        if name == "publication":
            children = [leaf("news:name", draw(VALUE)), leaf("news:language", draw(VALUE))]
            return f"<{tag}>{gap}{shuffled(children)}{gap}</{tag}>"
        if name == "tag":
            return gap.join(leaf(tag, draw(VALUE)) for _ in range(draw(st.integers(1, 3))))
        return leaf(tag, draw(VALUE), draw(INFO) if name in ("player_loc", "title") else "")

    def item(kind: str) -> str:
        if kind == "xhtml":
            return f'<xhtml:link rel="alternate" hreflang="de" href="x{draw(st.integers(0, 9))}"/>'
        fields = shuffled([field(kind, name) for name in ITEMS[kind] if draw(USUALLY)])
        return f"<{kind}:{kind}>{gap}{fields}{gap}</{kind}:{kind}>"

    def entry() -> str:
        parts = [leaf("loc", draw(URL)), leaf("lastmod", draw(DATE)), leaf("priority", "0.5")]
        most = {kind: 1 if kind == "news" else 3 for kind in kinds}
        counts = {kind: draw(st.integers(0, most[kind])) for kind in kinds}
        parts += [gap.join(item(kind) for _ in range(counts[kind])) for kind in kinds]
        return f"<url>{gap}{shuffled(parts)}{gap}</url>{gap}"

    return [entry() for _ in range(draw(st.integers(2, 8)))]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(document_in_changing_order(), st.integers(1, 4))
def test_entries_in_changing_order_are_those_of_the_strict_parser(entries, size):
    fast, strict = columns_of_both_paths(entries, size)
    assert fast == strict


def shuffled_images() -> list[str]:
    """Entries with two images, in all orders of their fields."""
    images = [image(fields) for fields in permutations(IMAGE_FIELDS)]
    return [f"<url>{LOC}{''.join(pair)}</url>" for pair in product(images, repeat=2)]


def shuffled_parts() -> list[str]:
    """Entries in all orders of their parts."""
    parts = [LOC, "<lastmod>2026-11-02</lastmod>", "<priority>0.5</priority>", image(IMAGE_FIELDS)]
    return [f"<url>{''.join(order)}</url>" for order in permutations(parts)]


def any_order() -> FastPath:
    """What has read entries in all orders."""
    whole = FastPath(PREFIXES)
    assert whole.match("".join(shuffled_images() + shuffled_parts())) is not None
    return whole


@pytest.mark.parametrize("entries", [shuffled_images(), shuffled_parts()], ids=["images", "parts"])
def test_entries_in_all_orders_are_matched_whole(entries):
    """Also if the first ones are in the same order."""
    whole = FastPath(PREFIXES)
    for text in (entries[0] * 2, "".join(entries), "".join(reversed(entries))):
        read = whole.match(text)
        assert read is not None
        images = [found for extras in read.extras for found in (extras or {})["images"]]
        assert len(images) == text.count("<image:image>")
        assert all(len(found) == len(IMAGE_FIELDS) for found in images)


def test_many_images_with_fields_in_changing_order_are_those_of_the_strict_parser():
    images = [image(fields) for fields in permutations(IMAGE_FIELDS)] * 5
    fast, strict = columns_of_both_paths([f"<url>{LOC}{''.join(images)}</url>"] * 3, 1)
    assert fast == strict


@pytest.mark.parametrize(
    "odd",
    [
        f"<url>{LOC}{LOC}{image(IMAGE_FIELDS)}</url>",
        f"<url>{image(IMAGE_FIELDS)}</url>",
        f"<url>{image(IMAGE_FIELDS)}{LOC}{image(IMAGE_FIELDS)}</url>",
        f"<url>{LOC}{image([*IMAGE_FIELDS[:2], IMAGE_FIELDS[1]])}</url>",
        f"<url>{LOC}{image(IMAGE_FIELDS[1:])}</url>",
        f"<url>{LOC}{image([])}</url>",
    ],
)
def test_parts_and_fields_that_repeat_or_lack_are_not_matched(odd):
    assert any_order().match(odd + "".join(shuffled_parts())) is None


def test_a_publication_that_repeats_a_field_is_left_to_the_parser():
    names = "<news:name>a</news:name><news:language>en</news:language>", "<news:name>b</news:name>"
    news = (
        "<news:news><news:title>t</news:title><news:publication>{}</news:publication></news:news>"
    )
    usual, odd = (f"<url>{LOC}{news.format(inside)}</url>" for inside in (names[0], names[1] * 2))
    assert FastPath(PREFIXES).match(usual) is not None
    assert FastPath(PREFIXES).match(usual + odd) is None


def test_attributes_with_the_same_key_are_left_to_the_parser():
    fields = ["<video:title>t</video:title>", '<video:a b_c="1">x</video:a>']
    odd = [*fields, '<video:a_b c="2">y</video:a_b>']
    for inside, matches in (fields, True), (odd, False):
        text = f"<url>{LOC}<video:video>{''.join(inside)}</video:video></url>"
        assert (FastPath(PREFIXES).match(text) is not None) is matches


HOSTILE = [LOC, "<loc>", "<url>", "<image:image>", "<image:title/>", *IMAGE_FIELDS]


@pytest.mark.parametrize("piece", [*HOSTILE, image(IMAGE_FIELDS), image(IMAGE_FIELDS[:1])])
def test_hostile_entries_take_linear_time(piece):
    """A quarter of a megabyte of each, where a search that tries all orders never ends."""
    many = piece * (256 * 1024 // len(piece))
    for text in (f"<url>{LOC}{many}</url>", f"<url>{image([many])}{LOC}</url>", f"<url>{many}x"):
        whole = any_order()
        began = time.process_time()
        assert whole.match(text) is None
        assert time.process_time() - began < 1
