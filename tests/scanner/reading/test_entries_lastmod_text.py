"""`lastmod` as listed: kept if it is more precise than the parsed time, and stored compactly."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from siteatlas.scanner.reading.entries import (
    listed_text,
    listed_texts,
    read_date,
    restored_text,
    stored_text,
    stored_texts,
)

FULL = [
    "2025-12-28T10:00:00Z",
    "2025-12-28T10:00:00+00:00",
    "2025-12-28T10:00:00.123456Z",
    "2025-12-28T10:00:00+0200",
    "2025-12-28 10:00:00 UTC",
    "Sun, 28 Dec 2025 10:00:00 GMT",
    "Sun, 28 Dec 2025 10:00:00 +0100",
]
AT_MIDNIGHT = ["2025-12-28T00:00:00Z", "2025-12-28T02:00:00+02:00"]
SHORTER = ["2026", "2025-12", "2025-12-28", "2025-12-28T10:00Z", "2025-12-28T10:00:00", "20251228"]
UNREADABLE = ["yesterday", "0000-00-00", "2025-13-45", "28.12.2025"]


@pytest.mark.parametrize("text", FULL + AT_MIDNIGHT)
def test_a_full_timestamp_needs_no_text(text):
    assert read_date(text) is not None
    assert listed_text(read_date(text), text) is None


@pytest.mark.parametrize("text", SHORTER + UNREADABLE)
def test_what_is_less_than_a_timestamp_is_kept_as_listed(text):
    assert listed_text(read_date(text), f" {text}\n") == text


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_absent_date_has_no_text(text):
    assert listed_text(None, text) is None


def test_blanks_around_a_date_are_no_text():
    assert listed_text(datetime(2026, 1, 1, tzinfo=UTC), "\x85") is None


def test_a_long_text_is_truncated_and_can_be_stored():
    text = listed_text(None, "\x00\ud800" + "x" * 1000)
    assert text is not None
    assert (len(text), text[:3], text[-1]) == (200, "\ufffd?x", "…")


@pytest.mark.parametrize("text", ["2025-12-28", *FULL])
def test_the_usual_forms_cost_no_byte(text):
    assert stored_text(read_date(text), text) is None


DATES = st.dates().map(str)


@given(st.sampled_from([*FULL, *AT_MIDNIGHT, *SHORTER, *UNREADABLE, ""]) | DATES | st.text())
@example("2025-12-28T00:00:00Z")
@example("2024-01-1 ")
@example("\x85")
def test_what_is_stored_gives_the_listed_text_back(text):
    moment = read_date(text.strip()) if len(text) <= 64 else None
    assert restored_text(moment, stored_text(moment, text)) == listed_text(moment, text)


USUAL = st.sampled_from(["2025-12-28", "2025-12-28T10:00:00Z", "2025-12-28T00:00:00+00:00"])


@given(st.lists(USUAL, min_size=1) | st.lists(st.sampled_from([*FULL, *SHORTER, *UNREADABLE, ""])))
@example(["2025-12-28", "2024-02-29"])
@example(["2025-12-28T10:00:00Z", "2025-12-28T10:00:00+00:00"])
@example(["2025-12-28T00:00:00Z"])
@example(["2025-13-45"])
@example(["2025-12-28\n2025-12-28"])
def test_a_column_is_read_as_its_values_are(texts):
    moments = [read_date(text.strip()) for text in texts]
    assert listed_texts(moments, texts) == list(map(listed_text, moments, texts))
    assert stored_texts(moments, texts) == list(map(stored_text, moments, texts))
