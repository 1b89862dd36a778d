"""Items that repeat fields until they reach a limit are cut as the strict parser cuts them."""

from __future__ import annotations

import pytest

from tests.fixtures.reading_paths import columns_of_both_paths

NAMES = ("title", "description", "tag", "category")


def field(name: str, value: str = "x") -> str:
    return f"<video:{name}>{value}</video:{name}>"


def entry(*videos: list[str]) -> str:
    inside = "".join(f"<video:video>{''.join(fields)}</video:video>" for fields in videos)
    return f"<url><loc>https://a.example/</loc>{inside}</url>"


TITLE, TEXT, TAG, CATEGORY = map(field, NAMES)
TOGETHER = [TITLE, TEXT, TAG, TAG, CATEGORY]


@pytest.mark.parametrize("usual", [TOGETHER])
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


@pytest.mark.parametrize("usual", [[TITLE, TEXT, TAG]])
def test_long_values_are_cut_as_by_the_strict_parser(usual):
    """One entry has more characters than it may, though no single field has."""
    long = [field(name, "x" * 4096) for name in NAMES[:2]] + [field("tag", "x" * 256)] * 32
    fast, strict = columns_of_both_paths([entry(*[usual] * 16), entry(*[long] * 16)], 1)
    assert fast == strict
