"""The messages of `siteatlas db`."""

from __future__ import annotations

import pytest

from siteatlas.cli.commands.db import _rows_in_words


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"domains": 1, "sitemap_urls": 1, "jobs": 1}, "1 site, 1 URL, 1 job"),
        ({"domains": 2, "sitemap_urls": 1200}, "2 sites, 1,200 URLs, 0 jobs"),
    ],
)
def test_the_rows_of_a_backup_are_counted_in_the_message(rows: dict[str, int], words: str):
    assert _rows_in_words(rows) == words
