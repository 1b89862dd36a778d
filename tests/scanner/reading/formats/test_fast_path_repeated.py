"""Fields that an item has several times, among others, must be read as the strict parser does."""

from __future__ import annotations

import time
from itertools import permutations
from string import ascii_lowercase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siteatlas.scanner.reading.entries import RawEntries
from siteatlas.scanner.reading.formats.fast_path import FastPath
from tests.fixtures.reading_paths import GAP, PATH, PREFIXES, columns_of_both_paths, escaped

LOC = "<loc>https://a.example/</loc>"
VALUE = st.one_of(PATH, st.sampled_from(["", " a b ", "a & b", "]]", "<b>"])).filter(
    lambda text: "]]>" not in text
)
NAMES = ("title", "description", "tag", "category")


def field(name: str, value: str = "x") -> str:
    return f"<video:{name}>{value}</video:{name}>"


def entry(*videos: list[str]) -> str:
    inside = "".join(f"<video:video>{''.join(fields)}</video:video>" for fields in videos)
    return f"<url>{LOC}{inside}</url>"


TITLE, TEXT, TAG, CATEGORY = map(field, NAMES)
SCATTERED = [TAG, TITLE, TAG, CATEGORY, TEXT, TAG, CATEGORY]
TOGETHER = [TITLE, TEXT, TAG, TAG, CATEGORY]


@st.composite
def document_with_scattered_fields(draw):
    """Entries with videos whose fields are in any order, some of them several times."""
    gap: str = draw(GAP)
    sections = draw(st.sets(st.sampled_from(["title", "tag"])))

    def leaf(name: str) -> str:
        value = draw(VALUE)
        return field(name, f"<![CDATA[{value}]]>" if name in sections else escaped(value, "names"))

    def video() -> list[str]:
        repeated = draw(st.lists(st.sampled_from(NAMES[2:]), max_size=6))
        names = draw(st.permutations([*NAMES[:2], *repeated]))
        return [leaf(name) + gap for name in names]

    def videos() -> list[list[str]]:
        return [video() for _ in range(draw(st.integers(0, 3)))]

    return [entry(*videos()) for _ in range(draw(st.integers(2, 8)))]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(document_with_scattered_fields(), st.integers(1, 4))
def test_scattered_fields_are_those_of_the_strict_parser(entries, size):
    fast, strict = columns_of_both_paths(entries, size)
    assert fast == strict


def videos_of(read: RawEntries | None) -> list[dict[str, object]]:
    assert read is not None
    return [video for extras in read.extras for video in (extras or {})["videos"]]


def test_scattered_fields_are_matched_whole_and_keep_their_order():
    tags = [field("tag", "1"), field("tag", "2"), field("tag", "3")]
    orders = list(permutations([TITLE, CATEGORY, *tags]))
    read = FastPath(PREFIXES).match("".join(entry([*order]) for order in orders))
    for order, video in zip(orders, videos_of(read), strict=True):
        values = [str(tags.index(part) + 1) for part in order if part in tags]
        assert video == {"title": "x", "category": ["x"], "tag": values}


def test_scattered_fields_of_many_videos_are_those_of_the_strict_parser():
    fast, strict = columns_of_both_paths([entry(*[SCATTERED] * 30)] * 3, 1)
    assert fast == strict


def test_the_end_of_a_section_in_a_plain_tag_is_an_error_though_other_tags_have_sections():
    title, section = (field(name, "<![CDATA[x]]>") for name in ("title", "tag"))
    tags = [section, TAG, field("tag", "x]]>x"), TAG]
    fast, strict = columns_of_both_paths([entry([title, tag]) for tag in tags], 1)
    assert fast == strict


@pytest.mark.parametrize("usual", [SCATTERED, TOGETHER])
@pytest.mark.parametrize(
    "odd",
    [
        [TAG] * 32 + [TITLE] + [TAG] * 32,
        [TITLE] + [TAG] * 32 + [CATEGORY] * 32,
        [TITLE, TEXT] + [TAG, CATEGORY] * 32,
    ],
)
def test_an_item_with_too_many_fields_is_cut_as_by_the_strict_parser(usual, odd):
    fast, strict = columns_of_both_paths([entry(usual), entry(odd)], 1)
    assert fast == strict


@pytest.mark.parametrize("usual", [[TAG, TITLE, TEXT, TAG], [TITLE, TEXT, TAG]])
def test_long_values_are_cut_as_by_the_strict_parser(usual):
    """One entry has more characters than it may, though no single field has."""
    long = [field(name, "x" * 4096) for name in NAMES[:2]] + [field("tag", "x" * 256)] * 32
    fast, strict = columns_of_both_paths([entry(*[usual] * 16), entry(*[long] * 16)], 1)
    assert fast == strict


def test_long_values_in_a_nested_field_are_cut_as_by_the_strict_parser():
    """One entry has more characters than it may, in the fields of fields."""

    def videos(size: int) -> str:
        inside = "".join(field(f"child{letter}", letter * size) for letter in ascii_lowercase)
        return entry(*[[TITLE, field("box", inside)]] * 4)

    fast, strict = columns_of_both_paths([videos(1), videos(3000), videos(1)], 1)
    assert fast == strict


HOSTILE = [TITLE, TAG, TAG + CATEGORY, "<video:tag>", "<video:video>", "<url><video:video>" + TAG]


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_fields_take_linear_time(piece):
    many = piece * (256 * 1024 // len(piece))
    for text in (entry([many]), entry([*SCATTERED, many]), f"<url>{LOC}<video:video>{many}x"):
        whole = FastPath(PREFIXES)
        assert whole.match(entry(SCATTERED)) is not None
        began = time.process_time()
        assert whole.match(text) is None
        assert time.process_time() - began < 1
