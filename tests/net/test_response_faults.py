"""Statuses and Retry-After headers mean the same everywhere."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from siteatlas.errors import (
    Blocked,
    EmptyDocument,
    HttpNotFound,
    HttpStatusUnexpected,
    PaymentRequired,
    RateLimited,
    ScanError,
    ServerError,
)
from siteatlas.net.response import error_for_status, retry_after_seconds

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize("status", [200, 304])
def test_a_good_status_is_no_error(status: int):
    assert error_for_status(status, None) is None


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, Blocked),
        (403, Blocked),
        (451, Blocked),
        (402, PaymentRequired),
        (404, HttpNotFound),
        (410, HttpNotFound),
        (429, RateLimited),
        (500, ServerError),
        (503, ServerError),
        (599, ServerError),
        (204, EmptyDocument),
        (302, HttpStatusUnexpected),
        (418, HttpStatusUnexpected),
    ],
)
def test_a_status_means_one_error(status: int, error: type[ScanError]):
    assert type(error_for_status(status)) is error


@pytest.mark.parametrize(
    ("price", "detail"),
    [("USD 0.01", "402, USD 0.01 per request"), (None, "(status 402)"), (" ", "(status 402)")],
)
def test_the_price_of_a_document_is_reported(price: str | None, detail: str):
    error = error_for_status(402, price=price)
    assert error is not None
    assert detail in error.message


def test_a_price_cannot_fill_the_message():
    error = error_for_status(402, price="\x1b[31m" + "9" * 1000)
    assert error is not None
    assert len(error.message) < 130
    assert "\x1b" not in error.message


@pytest.mark.parametrize("status", [429, 503])
def test_a_site_that_names_a_time_is_asked_again_then(status: int):
    error = error_for_status(status, 12.0)
    assert isinstance(error, RateLimited)
    assert error.retry_after == 12.0


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("5", 5),
        (" 0 ", 0),
        ("-20", 0),
        ("315360000", 3600),
        ("9" * 400, 3600),
        ("Thu, 01 Jan 2026 12:01:00 GMT", 60),
        ("Thu, 01 Jan 2026 12:01:00 -0000", 60),
        ("Thu, 01 Jan 2015 12:01:00 GMT", 0),
        ("Thu, 01 Jan 2099 12:01:00 GMT", 3600),
        ("soon", None),
        ("5.5", None),
        ("٥", None),
        ("-", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(header: str | None, seconds: float | None):
    assert retry_after_seconds(header, NOW) == seconds
