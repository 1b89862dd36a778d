"""Calls of the Python API that cannot be meant are refused in words."""

from __future__ import annotations

from typing import Any

import pytest

from siteatlas import scan, scan_sync
from siteatlas.errors import InputError

NONSENSE: list[tuple[Any, dict[str, Any], str]] = [
    (None, {}, "site must be"),
    (b"example.com", {}, "site must be"),
    ("example.com", {"max_urls": 0}, "max_urls must be"),
    ("example.com", {"max_urls": -5}, "max_urls must be"),
    ("example.com", {"max_urls": True}, "max_urls must be"),
    ("example.com", {"max_urls": 1.5}, "max_urls must be"),
    ("example.com", {"max_urls": "7"}, "max_urls must be"),
    ("example.com", {"probe": "half"}, "probe must be"),
    ("example.com", {"probe": ["auto"]}, "probe must be"),
]


@pytest.mark.parametrize(("site", "choices", "words"), NONSENSE)
async def test_a_call_that_cannot_be_meant_is_refused(
    site: Any, choices: dict[str, Any], words: str
):
    with pytest.raises(InputError, match=words):
        await anext(scan(site, **choices))
    with pytest.raises(InputError, match=words):
        next(scan_sync(site, **choices))
