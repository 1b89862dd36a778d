"""Characters in foreign text that must be escaped in terminals, logs and data lines.

Owns the character sets and their escapes. `logs.py`, the scanner and the command line decide how to
use them.
"""

from __future__ import annotations

import re

CONTROLS = r"\x00-\x1f\x7f-\x9f"
LINE_SEPARATORS = r"\u2028\u2029"
# All of the Unicode property Bidi_Control.
BIDI_CONTROLS = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
# Format characters that show nothing. The two joiners are missing: words and emoji need them.
INVISIBLE = (
    r"\u00ad\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
)
# What ends a line or reorders it.
DISRUPTIVE = CONTROLS + LINE_SEPARATORS + BIDI_CONTROLS

MAX_BYTE = 0xFF
MAX_SHORT = 0xFFFF


def escape(match: re.Match[str]) -> str:
    """The one character that was matched, as Python writes it in ASCII."""
    point = ord(match.group())
    if point <= MAX_BYTE:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= MAX_SHORT else f"\\U{point:08x}"
