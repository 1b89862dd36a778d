"""Which elements, attributes and language codes exist, read from `vocabulary.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files

_match_code = re.compile(r"([a-z]{2,3})(?:[-_]([a-z]{4}))?(?:-([a-z]{2}|[0-9]{3}))?").fullmatch


@cache
def words(table: str) -> Mapping[str, tuple[str, ...]]:
    """The lists of words of a table: `codes`, `elements` or `attributes`."""
    text = files("siteatlas.findings").joinpath("vocabulary.toml").read_text(encoding="utf-8")
    return {name: tuple(listed.split()) for name, listed in tomllib.loads(text)[table].items()}


def allows_attribute(element: str, name: str, value: str) -> bool:
    """Whether an element such as `video:price` may have this attribute."""
    for word in words("attributes").get(element, ()):
        known, _, values = word.partition("=")
        if known == name:
            return not values or value in values.split(",")
    return False


def missing_attribute(element: str, text: str) -> str:
    """The attribute that an element with these attributes lacks; of some, one of two is enough."""
    for names in words("required").get(element, ()):
        if not re.search(rf"(?:^|\s)(?:{names})\s*=\s*[\"'][^\"']", text):
            return names.partition("|")[0]
    return ""


@lru_cache(maxsize=4096)
def is_hreflang(text: str) -> bool:
    """Whether search engines know it: a language, if need be with script and region."""
    code = text.lower()
    match = _match_code(code)
    if match is None:
        return code == "x-default"
    language, _, region = match.groups()
    known = language in words("codes")["languages"] or len(language) == 3
    return known and (region is None or region.isdigit() or region in words("codes")["regions"])


def is_news_language(text: str) -> bool:
    """Whether Google News knows it: two or three letters; regions for Chinese only."""
    code = text.lower()
    if code in words("codes")["languages"] or code in {"zh-cn", "zh-tw"}:
        return True
    return len(code) == 3 and code.isascii() and code.isalpha()
