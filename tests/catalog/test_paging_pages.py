"""Cursors lead back to their place in their own list, and to nothing else."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from uuid import uuid4

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteatlas.catalog.paging import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    CursorScope,
    bigint_key,
    page_size,
    text_key,
    uuid_key,
)
from siteatlas.catalog.views import MAX_BIGINT, MIN_BIGINT
from siteatlas.errors import CursorInvalid

JOBS = CursorScope("jobs", ("failed", None))


def packed(*parts: object) -> str:
    return urlsafe_b64encode(orjson.dumps(list(parts))).decode()


@pytest.mark.parametrize("number", [0, 7, MAX_BIGINT, MIN_BIGINT])
def test_a_cursor_gives_its_number_back(number: int):
    assert JOBS.read(JOBS.write(number), bigint_key) == number


def test_a_cursor_gives_its_uuid_back():
    ident = uuid4()
    assert JOBS.read(JOBS.write(ident), uuid_key) == ident


def test_no_cursor_is_the_beginning():
    assert JOBS.read(None, bigint_key) is None


@pytest.mark.parametrize(
    "other",
    [
        CursorScope("jobs"),
        CursorScope("jobs", ("completed", None)),
        CursorScope("jobs", (None, "failed")),
        CursorScope("scans", ("failed", None)),
    ],
)
def test_a_cursor_of_another_list_or_filter_is_refused(other: CursorScope):
    with pytest.raises(CursorInvalid):
        JOBS.read(other.write(7), bigint_key)


@pytest.mark.parametrize(
    "junk",
    [
        "",
        "x",
        "ü",
        "%%%",
        "\x00",
        "a" * 3000,
        packed(),
        packed(JOBS.mark),
        packed(JOBS.mark, "1", "2"),
        packed(JOBS.mark, "one"),
        packed(JOBS.mark, "9223372036854775808"),
        packed(JOBS.mark, 1),
        packed(JOBS.mark, None),
        packed(JOBS.mark, "1\x00"),
        packed(["nested"]),
        urlsafe_b64encode(b"{}").decode(),
        urlsafe_b64encode(b"[" * 1200).decode(),
    ],
)
def test_junk_is_refused(junk: str):
    with pytest.raises(CursorInvalid):
        JOBS.read(junk, bigint_key)


@given(st.text(max_size=200))
def test_any_text_is_a_place_or_refused(text: str):
    try:
        found = JOBS.read(text, text_key)
    except CursorInvalid:
        return
    assert isinstance(found, str)


@pytest.mark.parametrize(
    ("asked", "given_size"), [(None, DEFAULT_LIMIT), (1, 1), (1000, 1000), (10**9, MAX_LIMIT)]
)
def test_a_page_is_as_large_as_asked_up_to_the_most(asked: int | None, given_size: int):
    assert page_size(asked) == given_size
