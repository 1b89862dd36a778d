"""Tags: how they are written, and how many may be given."""

from __future__ import annotations

import pytest

from siteatlas.errors import TagInvalid, TooManyTags
from siteatlas.text import MAX_TAG_CHARS, MAX_TAGS, parse_tag, parse_tags


def test_tags_are_stored_in_lower_case_sorted_and_once():
    assert parse_tags(["Shop", "eu/north", " shop ", "a.b:c_d-e"]) == [
        "a.b:c_d-e",
        "eu/north",
        "shop",
    ]


@pytest.mark.parametrize(
    "text", ["", " ", "-a", "a b", "a,b", "ä", "a\x00", "x" * (MAX_TAG_CHARS + 1)]
)
def test_what_is_not_a_tag_is_refused(text: str):
    with pytest.raises(TagInvalid):
        parse_tag(text)


def test_the_number_of_tags_is_limited():
    assert len(parse_tags(f"t{number}" for number in range(MAX_TAGS))) == MAX_TAGS
    with pytest.raises(TooManyTags):
        parse_tags(f"t{number}" for number in range(MAX_TAGS + 1))
