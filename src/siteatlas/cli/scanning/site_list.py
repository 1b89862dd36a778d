"""A list of sites on stdin: one a line, with blank lines and comments between them.

Owns how a line is read. Whether a site can be scanned is decided by whoever asked for the list.
"""

from __future__ import annotations

STDIN = "-"
COMMENT = "#"
MAX_LINE_CHARS = 8192


def site_in(line: bytes) -> str | None:
    """The site that a line names; None for a blank line or a comment."""
    text = line.decode("utf-8", "replace").removeprefix("\ufeff")
    text = text.partition(f" {COMMENT}")[0].strip()
    return text if text and not text.startswith(COMMENT) else None
