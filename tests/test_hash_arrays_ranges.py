"""Hashes and texts as PostgreSQL holds them."""

from __future__ import annotations

import pytest

from siteatlas.catalog.urls import url_hash, url_hashes
from siteatlas.hash_arrays import signed64
from siteatlas.text import storable, unaltered

URLS = [f"https://a.example/{n}" for n in range(200)]


def test_many_urls_are_hashed_as_each_of_them():
    assert url_hashes(URLS) == [url_hash(url) for url in URLS]


def test_hashes_fit_a_signed_bigint_and_use_both_halves():
    hashes = url_hashes(URLS)
    assert all(-(2**63) <= value < 2**63 for value in hashes)
    assert min(hashes) < 0 < max(hashes)


@pytest.mark.parametrize(
    ("unsigned", "signed"), [(0, 0), (2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (2**64 - 1, -1)]
)
def test_the_upper_half_is_negative(unsigned: int, signed: int):
    assert signed64(unsigned) == signed


def test_a_hash_stays_what_earlier_versions_stored():
    # A different number would store every URL a second time after an upgrade.
    assert url_hash("https://a.example/") == -9002136015728862429


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("plain é 🦊", "plain é 🦊"),
        ("a\x00b", "a\ufffdb"),
        ("a\ud800b", "a?b"),
        ("abcdef" * 9, "abcdefabcd"),
    ],
)
def test_text_is_stored_without_what_postgresql_refuses(text: str, stored: str):
    assert storable(text, 10) == stored


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (None, None),
        ('"abc"', '"abc"'),
        ("a" * 10, "a" * 10),
        ("a" * 11, None),
        ("é", None),
        ("\n", None),
    ],
)
def test_a_text_is_kept_exactly_or_not_at_all(text: str | None, kept: str | None):
    assert unaltered(text, 10) == kept
