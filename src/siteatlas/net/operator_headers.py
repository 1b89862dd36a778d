"""Headers that the operator wants to send to their own hosts, and never to others.

`egress.py` decides which hosts are the operator's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from siteatlas.errors import ConfigurationError

MAX_VALUE_CHARS = 8192
# The client sets these itself; a second opinion would break requests or their limits.
_OURS = frozenset(
    (
        *("accept-encoding", "connection", "content-length", "host", "if-modified-since"),
        *("if-none-match", "range", "te", "trailer", "transfer-encoding", "upgrade", "user-agent"),
    )
)
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(rf"[\x20-\x7e\t]{{0,{MAX_VALUE_CHARS}}}")


def read_header_lines(lines: Iterable[str]) -> dict[str, str]:
    """`Name: value` lines as a table; ConfigurationError names the header, never its value."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ConfigurationError("A header is written as 'Name: value'.")
        headers[name.strip()] = value.strip()
    return checked_headers(headers)


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """A copy of the table; ConfigurationError for what cannot or must not be sent."""
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise ConfigurationError("The header name contains an invalid character.")
        if name.lower() in _OURS:
            raise ConfigurationError(f"The header {name} is set by Siteatlas itself.")
        if not _VALUE.fullmatch(value):
            raise ConfigurationError(
                f"The value of the header {name} contains an invalid character."
            )
    return dict(headers)
