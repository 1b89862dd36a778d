"""What of an entry is compared: its fingerprint, without the date, and the date."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from siteatlas.catalog.url_copy import NO_DATE, date_numbers
from siteatlas.catalog.urls import text_numbers
from siteatlas.processor.comparison import fingerprints
from siteatlas.processor.entries import READ_VERSION

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)

DIFFERENT: list[dict[str, Any]] = [
    {},
    {"changefreq": "daily"},
    {"priority": 0.5},
    {"priority": 0.0},
    {"extras": '{"images":1}'},
    {"changefreq": "daily", "extras": '{"images":1}'},
]
# What version 1 stores. Another number would report every stored URL as changed: raise
# `READ_VERSION` with it, so that the next read of each document is silent.
GOLDEN = [
    ({}, 5003479914110023177),
    ({"changefreq": "daily", "priority": 0.5}, 8420009937364030784),
    ({"changefreq": "weekly"}, -1541725863097197253),
    (
        {"priority": 1.0, "extras": '{"images":[{"loc":"https://a.example/1.png"}]}'},
        -3929809855634528443,
    ),
]


def fingerprint(
    changefreq: str | None = None, priority: float | None = None, extras: str | None = None
) -> int:
    (found,) = fingerprints([changefreq], [priority], [extras])
    return found


def test_every_listed_value_changes_the_fingerprint():
    assert len({fingerprint(**values) for values in DIFFERENT}) == len(DIFFERENT)


@pytest.mark.parametrize(("values", "stored"), GOLDEN)
def test_fingerprints_stay_what_this_read_version_stores(values, stored):
    assert READ_VERSION == 1
    assert fingerprint(**values) == stored


def test_entries_with_extras_do_not_change_the_fingerprints_of_others():
    columns = [
        [one.get(name) for one in DIFFERENT] for name in ("changefreq", "priority", "extras")
    ]
    alone = [fingerprint(**values) for values in DIFFERENT]
    assert fingerprints(*columns) == alone


def test_one_moment_in_two_time_zones_is_one_date():
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5)))
    assert date_numbers([NOON, elsewhere, None]) == [
        846_849_600_000_000,
        846_849_600_000_000,
        NO_DATE,
    ]
    assert date_numbers([NOON + timedelta(microseconds=1)]) != date_numbers([NOON])


def test_texts_of_dates_are_compared_only_if_there_are_any():
    assert text_numbers([None, None]) is None
    numbers = text_numbers(["2026-11", None, "2026-11"])
    assert numbers is not None
    assert numbers[0] == numbers[2] != numbers[1]
