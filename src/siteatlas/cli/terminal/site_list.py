"""Lists of sites on stdin, as `siteatlas scan` and `siteatlas domains add` read them."""

from __future__ import annotations

STDIN = "-"
COMMENT = "#"
MAX_LINE_CHARS = 8192


def site_in_line(line: bytes) -> str | None:
    """The site that a line on the stdin of a command names; None for a blank line or comment."""
    text = line.decode("utf-8", "replace").removeprefix("\ufeff")
    text = text.partition(f" {COMMENT}")[0].strip()
    return text if text and not text.startswith(COMMENT) else None
