"""A column of dates is read as its dates are one by one, whichever path is taken."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from siteatlas.scanner.reading.entries import (
    RawEntries,
    Tally,
    build_columns,
    listed_text,
    listed_texts,
    read_date,
    stored_text,
    stored_texts,
)

ODD_TIMES = [
    "2025-12-28T00:00:00",
    "2025-02-30T10:00:00",
    "2025-12-31T24:00:00",
    "1969-12-31T23:59:59",
    "2100-12-31T24:00:00",
    "2101-01-01T00:00:00",
    "9999-12-31T23:59:59",
]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES = st.integers(-(10**9), 45 * 10**8).map(
    lambda seconds: f"{EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}"
) | st.sampled_from(ODD_TIMES)


def columns_of_one_form(ending):
    return st.lists(TIMES.map(lambda time: time + ending), min_size=1, max_size=12)


COLUMNS = columns_of_one_form("Z") | columns_of_one_form("+00:00") | columns_of_one_form("+02:00")
MIXED = st.lists(TIMES.flatmap(lambda time: st.sampled_from([f"{time}Z", time[:10], "", "soon"])))


def build(lastmods):
    tally = Tally()
    locs = [f"https://a.example/{number}" for number in range(len(lastmods))]
    return build_columns(RawEntries(locs, lastmods, locs_are_plain=True), tally), tally


@given(COLUMNS | MIXED.filter(bool))
@example(["2025-12-28T10:00:00Z"] * 3 + ["2025-12-28T10:00:01Z"])
@example(["2025-12-28T10:00:00Z", "2025-12-28T00:00:00Z"])
@example(["2025-12-28T10:00:00Z", "2025-12-31T24:00:00Z"])
@example(["2025-12-28T10:00:00Z", "2025-02-30T10:00:00Z"])
@example(["2025-12-28T10:00:00Z\n2025-12-28T10:00:00Z", ""])
@example(["2025-12-28T10:00:0\u0661Z"])
@example(["2025-12-28T00:00:00+02:00", "2025-12-28T02:00:00+02:00"])
def test_dates_and_their_texts_are_those_of_the_single_values(texts):
    columns, tally = build(texts)
    dates = [read_date(text.strip()) if text.strip() else None for text in texts]
    assert columns.lastmods == dates
    assert listed_texts(dates, columns.listed_lastmods()) == list(map(listed_text, dates, texts))
    assert stored_texts(dates, columns.listed_lastmods()) == list(map(stored_text, dates, texts))
    invalid = sum(
        date is None and bool(text.strip()) for date, text in zip(dates, texts, strict=True)
    )
    limit = datetime.now(UTC) + timedelta(days=1)
    assert tally.problems["lastmod_invalid"] == invalid
    assert tally.problems["lastmod_future"] == sum(
        date is not None and date > limit for date in dates
    )


@pytest.mark.slow
@given(COLUMNS, COLUMNS)
def test_columns_that_are_put_together_keep_their_texts(first, second):
    columns, _ = build(first)
    columns.extend(build(second)[0])
    dates, texts = columns.lastmods, [*first, *second]
    assert stored_texts(dates, columns.listed_lastmods()) == list(map(stored_text, dates, texts))


def test_timestamps_that_equal_their_parsed_times_are_not_kept_as_text():
    assert build(["2025-12-28T10:00:00Z", "2025-12-28T10:00:01Z"])[0].lastmod_texts == []
