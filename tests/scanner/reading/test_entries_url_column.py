"""Looking at a column of URLs as a whole."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from siteatlas.scanner.reading.entries import all_begin_with

TEXTS = st.text("ab/é", max_size=4)


@given(TEXTS, st.lists(TEXTS, min_size=1))
@example("a/", ["a/b", "a0b", "a/"])
def test_a_column_begins_with_what_each_of_its_urls_begins_with(prefix, urls):
    assert all_begin_with(prefix, urls) == all(url.startswith(prefix) for url in urls)
