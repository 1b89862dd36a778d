"""Makes foreign text safe to show, to log and to store.

Owns the sets of characters that must be escaped in terminals, logs and data lines, their escapes,
what counts as a secret, and the form that PostgreSQL and JSON can hold. The log, the scanner and
the command line decide where to apply them.
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
# Halves of a pair, which are no characters, and what stands for a character that was not decoded.
SURROGATES = r"\ud800-\udfff"
REPLACEMENT = "\ufffd"
# What ends a line or reorders it.
DISRUPTIVE = CONTROLS + LINE_SEPARATORS + BIDI_CONTROLS
UNPRINTABLE = re.compile(f"[{DISRUPTIVE}{INVISIBLE}]")
CONTROL_CHARACTERS = re.compile(f"[{DISRUPTIVE}]")
# Looks ahead for the word, so that a name that repeats it is not searched again from each.
SECRET_IN_QUERY = re.compile(
    r"(?i)([?&](?=[a-z_-]*(?:token|secret|password|passwd|signature|api_?key|auth))[a-z_-]*+=)"
    r"[^&\s\"']+"
)
CREDENTIALS_IN_URL = re.compile(r"(://)[^/@\s]+@")
# What all three of them need; most texts have none of it.
SUSPICIOUS = re.compile(f"[{DISRUPTIVE}@=]")

ELLIPSIS = "…"
MAX_STORED_CHARS = 8_192
MAX_BYTE = 0xFF
MAX_SHORT = 0xFFFF


def escape(match: re.Match[str]) -> str:
    """The one character that was matched, as Python writes it in ASCII."""
    point = ord(match.group())
    if point <= MAX_BYTE:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= MAX_SHORT else f"\\U{point:08x}"


def printable(text: str) -> str:
    """Escape control, bidirectional and invisible characters before terminal output."""
    return UNPRINTABLE.sub(escape, text)


def clean_text(value: str) -> str:
    """Text from outside made safe for one line: no control characters, no secrets."""
    if SUSPICIOUS.search(value) is None:
        return value
    value = CREDENTIALS_IN_URL.sub(r"\1***@", value)
    value = SECRET_IN_QUERY.sub(r"\1***", value)
    return CONTROL_CHARACTERS.sub(escape, value)


def storable(text: str, max_chars: int = MAX_STORED_CHARS) -> str:
    """The first characters, with replacements for NUL and lone surrogates."""
    return text[:max_chars].encode("utf-8", "replace").decode().replace("\x00", REPLACEMENT)


def truncated(text: str, max_chars: int) -> str:
    """The text as it can be stored; an ellipsis says that it goes on."""
    if len(text) <= max_chars:
        return storable(text, max_chars)
    return storable(text, max_chars - 1) + ELLIPSIS


def is_storable(text: str) -> bool:
    """Whether PostgreSQL can hold the text; lone surrogates cannot come out of JSON."""
    return "\x00" not in text


def unaltered(text: str | None, longest: int) -> str | None:
    """The text if it can be stored exactly as it is; None otherwise."""
    if text is None or len(text) > longest or not text.isascii() or not text.isprintable():
        return None
    return text
