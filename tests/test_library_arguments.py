"""Calls of the Python API with invalid arguments are refused with a message."""

from __future__ import annotations

from typing import Any

import pytest

from siteatlas import scan, scan_sync
from siteatlas.errors import ConfigurationError, EgressDenied, InputError
from siteatlas.library import MAX_USER_AGENT_CHARS
from siteatlas.settings import load_settings

NONSENSE: list[tuple[Any, dict[str, Any], str]] = [
    (None, {}, "site must be"),
    (b"example.com", {}, "site must be"),
    ("example.com", {"max_urls": 0}, "max_urls must be"),
    ("example.com", {"max_urls": -5}, "max_urls must be"),
    ("example.com", {"max_urls": True}, "max_urls must be"),
    ("example.com", {"max_urls": 1.5}, "max_urls must be"),
    ("example.com", {"max_urls": "7"}, "max_urls must be"),
    ("example.com", {"only": 1}, "only must be True or False"),
    ("example.com", {"strict": "yes"}, "strict must be True or False"),
    ("example.com", {"probe": "half"}, "probe must be"),
    ("example.com", {"probe": ["auto"]}, "probe must be"),
    ("example.com", {"allow": ["a b"]}, "allow: 'a b' does not name a host"),
    ("example.com", {"allow": ["::1:80"]}, r"'::1:80' is not HOST\[:PORT\]"),
    ("example.com", {"allow": "10.0.0.0/4:80"}, "allow: '10.0.0.0/4:80' is too large"),
    ("example.com", {"allow": [5]}, "allow must be"),
    ("example.com", {"allow": b"a:1"}, "allow must be"),
    ("example.com", {"allow": 5}, "allow must be"),
    ("example.com", {"allow": None}, "allow must be"),
    ("example.com", {"sitemaps": [5]}, "sitemaps must be a list of strings"),
    ("example.com", {"sitemaps": None}, "sitemaps must be a list of strings"),
    ("example.com", {"sitemaps": ["*"] * 21}, "At most 20 patterns"),
    ("example.com", {"sitemaps": "x" * 201}, "must have 1 to 200 characters"),
    ("example.com", {"skip_sitemaps": [""]}, "must have 1 to 200 characters"),
    ("example.com", {"skip_sitemaps": 7}, "skip_sitemaps must be a list of strings"),
    ("example.com", {"sitemaps_since": "2026-01-31"}, "sitemaps_since must be a date"),
    ("example.com", {"user_agent": 5}, "user_agent must be"),
    ("example.com", {"user_agent": None}, "user_agent must be"),
    ("example.com", {"user_agent": " "}, "user_agent must be"),
    ("example.com", {"user_agent": "a\r\nb: c"}, "user_agent must be ASCII, on one line"),
    ("example.com", {"user_agent": "bö→"}, "user_agent must be ASCII"),
    ("example.com", {"user_agent": "x" * 401}, "user_agent must have at most 400"),
]


@pytest.mark.parametrize(("site", "choices", "words"), NONSENSE)
async def test_a_call_that_cannot_be_meant_is_refused(
    site: Any, choices: dict[str, Any], words: str
):
    with pytest.raises(InputError, match=words):
        await anext(scan(site, **choices))
    with pytest.raises(InputError, match=words):
        next(scan_sync(site, **choices))


@pytest.mark.parametrize(
    "user_agent", ["x" * MAX_USER_AGENT_CHARS, "".join(map(chr, range(33, 127)))]
)
def test_what_the_setting_accepts_as_user_agent_the_library_accepts_too(user_agent: str):
    assert load_settings({"user_agent": user_agent}, {}).settings.user_agent == user_agent
    # The address is looked at after all other values.
    with pytest.raises(EgressDenied):
        next(scan_sync("http://127.0.0.1", user_agent=user_agent))


def test_a_refused_host_is_named_with_what_allows_it():
    with pytest.raises(EgressDenied, match=r"^127.0.0.1: .*not a public.*allow=\['127.0.0.1'\]$"):
        scan_sync("http://127.0.0.1")


def test_the_allow_list_of_the_environment_is_for_the_library_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SITEATLAS_EGRESS_ALLOW", "127.0.0.1:1")
    assert scan_sync("http://127.0.0.1:1", allow=["127.0.0.1:2"]).report.status == "processing"
    with pytest.raises(EgressDenied):
        scan_sync("http://127.0.0.1:3")


def test_the_setting_and_the_library_agree_on_the_longest_user_agent():
    with pytest.raises(ConfigurationError, match=f"{MAX_USER_AGENT_CHARS} characters"):
        load_settings({"user_agent": "x" * (MAX_USER_AGENT_CHARS + 1)}, {})
