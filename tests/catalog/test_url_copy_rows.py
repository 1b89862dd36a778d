"""Rows of URLs in memory, of which the latest listing is kept."""

from __future__ import annotations

from uuid import UUID

from siteatlas.catalog.url_copy import UrlRows
from siteatlas.catalog.urls import key_parameters
from tests.fixtures.entries import listed_columns

A, B = UUID(int=1), UUID(int=2)


def test_of_several_listings_of_a_url_the_latest_is_kept_and_else_the_greater_fingerprint():
    listed = listed_columns([7, 7, 7, 7, 8], [1, 1, 2, 9, 3], [5, 6, 6, 4, 5])
    rows = UrlRows()
    for document, index in [(A, 0), (A, 1), (B, 0), (A, 2), (A, 3), (A, 4)]:
        rows.put_latest(document, listed, index)
    assert rows.runs == [(A, 1), (B, 1), (A, 1)]
    assert list(zip(rows.url_hash, rows.fingerprint, rows.dates, strict=True)) == [
        (7, 2, 6),
        (7, 1, 5),
        (8, 3, 5),
    ]


def test_a_row_that_is_discarded_leaves_the_others_where_they_are_found():
    rows, listed = UrlRows(), listed_columns([1, 2, 3], [0, 0, 0], [5, 5, 5])
    for index in range(3):
        rows.put_latest(A, listed, index)
    for key in (1, 4, 1):
        rows.discard(A, key)
    rows.put_latest(A, listed_columns([3], [9], [6]), 0)
    assert (sorted(rows.url_hash), len(rows.runs)) == ([2, 3], 2)
    assert rows.fingerprint[rows.url_hash.index(3)] == 9
    rows.discard(A, 3)
    rows.discard(A, 2)
    assert (len(rows), rows.runs, rows.places) == (0, [], {})


def test_keys_are_sent_in_several_statements_if_there_are_many():
    keys = {A: range(9_999), B: range(3)}
    first, second = key_parameters(keys)
    assert first["p_sitemap_ids"] == second["p_sitemap_ids"] == [A, B]
    assert (first["p_place"][-1], first["p_url_hash"][-1], len(first["p_place"])) == (2, 0, 10_000)
    assert (second["p_place"], second["p_url_hash"]) == ([2, 2], [1, 2])
    assert list(key_parameters({A: []})) == []
