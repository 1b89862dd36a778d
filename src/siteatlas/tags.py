"""Tags of domains: how they are written, and how many a domain may have."""

from __future__ import annotations

import re
from collections.abc import Iterable

from siteatlas.errors import TagInvalid, TooManyTags

MAX_TAGS = 20
MAX_TAG_CHARS = 50
TAG_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$"
_TAG = re.compile(TAG_PATTERN)


def parse_tag(text: str) -> str:
    """A tag as it is stored, in lower case; TagInvalid if it cannot be one."""
    tag = text.strip().lower()
    if len(tag) > MAX_TAG_CHARS or not _TAG.fullmatch(tag):
        raise TagInvalid
    return tag


def parse_tags(texts: Iterable[str]) -> list[str]:
    """Tags as they are stored, each once and sorted; TooManyTags if they are more than allowed."""
    return merged_tags((), (parse_tag(text) for text in texts))


def merged_tags(kept: Iterable[str], added: Iterable[str]) -> list[str]:
    """The tags of a site with further ones; TooManyTags if those make them more than allowed."""
    before = set(kept)
    tags = before.union(added)
    if len(tags) > max(MAX_TAGS, len(before)):
        raise TooManyTags
    return sorted(tags)
