"""ETags of responses whose content is known to be the same without being built."""

from __future__ import annotations

import re

import xxhash

# Of a tag, what is compared: `W/` says that it is weak. It may contain commas.
_OPAQUE_TAG = re.compile(r'(?:W/)?("[^"]*")')


def entity_tag(*parts: object) -> str:
    """The ETag of a response that depends on nothing but these values."""
    text = "\x1f".join(map(str, parts))
    return f'"{xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))}"'


def is_known(tag: str, if_none_match: str | None) -> bool:
    """Whether a client has the response with this ETag, by its `If-None-Match` (RFC 9110, 13.1.2).

    Tags are compared weakly, because a proxy that compresses responses makes them weak.
    """
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or tag in _OPAQUE_TAG.findall(if_none_match)
