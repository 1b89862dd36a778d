"""Words of a closed set that people type."""

from __future__ import annotations

import pytest

from siteatlas.errors import InputError
from siteatlas.queue.fence import STATUS_ALIASES, parse_status_or_type
from siteatlas.storage.models import SitemapStatus


@pytest.mark.parametrize("typed", ["completed", " Completed ", "complete", "COMPLETE"])
def test_a_word_is_read_in_any_case_and_by_its_older_name(typed: str):
    found = parse_status_or_type(typed, SitemapStatus, "status", STATUS_ALIASES)
    assert found is SitemapStatus.COMPLETED


@pytest.mark.parametrize("typed", ["", "banana", "complete"])
def test_an_unknown_word_is_refused_with_the_known_ones(typed: str):
    with pytest.raises(InputError) as caught:
        parse_status_or_type(typed, SitemapStatus, "status")
    assert repr(typed) in caught.value.message
    assert all(word in caught.value.message for word in SitemapStatus)


def test_the_older_words_are_named_where_they_are_known():
    with pytest.raises(InputError, match="complete, error"):
        parse_status_or_type("banana", SitemapStatus, "status", STATUS_ALIASES)
