"""The event for a robots.txt that changed: a readable diff, limited in size."""

from __future__ import annotations

from difflib import unified_diff
from typing import Any

from siteatlas.errors import AddressError
from siteatlas.net.address import parse_url
from siteatlas.safe_text import storable
from siteatlas.scanner.events import RobotsRead
from siteatlas.storage.statements.robots_files import RobotsChange, RobotsText

# Comparing takes time that grows faster than the number of lines; no event waits long for it.
MAX_COMPARED_LINES = 2_000
MAX_DIFF_LINES = 200
MAX_DIFF_CHARS = 10_000
MAX_TEXT_CHARS = 1_000_000
# By RFC 9309 the site then has no robots.txt.
NO_FILE = range(400, 500)


def robots_text(event: RobotsRead) -> RobotsText | None:
    """The text of a robots.txt that was read; None if it could not be read."""
    missing = event.http_status in NO_FILE
    content = "" if missing else event.text
    if content is None or event.error_code is not None:
        return None
    try:
        origin = parse_url(event.url).origin
    except AddressError:
        return None
    return RobotsText(origin, storable(content, MAX_TEXT_CHARS), event.http_status, event.truncated)


def robots_event_data(change: RobotsChange, text: RobotsText) -> dict[str, Any]:
    """The data of a `robots_changed` event."""
    before, after = change.before.splitlines(), text.content.splitlines()
    data: dict[str, Any] = {
        "origin": text.origin,
        "lines_before": len(before),
        "lines_after": len(after),
        "http_status_before": change.http_status_before,
        "http_status": text.http_status,
    }
    if max(len(before), len(after)) > MAX_COMPARED_LINES:
        return data | {"diff": None, "diff_truncated": True}
    lines = list(unified_diff(before, after, "before", "after", n=1, lineterm=""))
    diff = "\n".join(lines[:MAX_DIFF_LINES])
    is_cut = len(lines) > MAX_DIFF_LINES or len(diff) > MAX_DIFF_CHARS
    return data | {"diff": diff[:MAX_DIFF_CHARS], "diff_truncated": is_cut}
