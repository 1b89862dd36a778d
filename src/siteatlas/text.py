"""Text from outside, made safe to show, to log, to store and to export; tags; and line diffs.

Owns the sets of characters that must be escaped in terminals, logs and data lines, what counts as a
secret, the form that PostgreSQL and JSON can hold, and CSV cells that no spreadsheet interprets as
a formula. The log, the scanner and the command line decide where to apply them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from siteatlas.errors import TagInvalid, TooManyTags

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

MAX_TAGS = 20
MAX_TAG_CHARS = 50
TAG_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$"

CONTEXT_LINES = 3
MAX_SHOWN_LINES = 500
MAX_LINE_CHARS = 500

UNPRINTABLE = re.compile(f"[{DISRUPTIVE}{INVISIBLE}]")


def printable(text: str) -> str:
    """Escape control, bidirectional and invisible characters before terminal output."""
    return UNPRINTABLE.sub(escape, text)


CONTROL_CHARACTERS = re.compile(f"[{DISRUPTIVE}]")
# Looks ahead for the word, so that a name that repeats it is not searched again from each.
SECRET_IN_QUERY = re.compile(
    r"(?i)([?&](?=[a-z_-]*(?:token|secret|password|passwd|signature|api_?key|auth))[a-z_-]*+=)"
    r"[^&\s\"']+"
)
CREDENTIALS_IN_URL = re.compile(r"(://)[^/@\s]+@")
# What the three patterns above need; most texts have none of it.
SUSPICIOUS = re.compile(f"[{DISRUPTIVE}@=]")


def clean_text(value: str) -> str:
    """Text from outside made safe for one line: no control characters, no secrets."""
    if SUSPICIOUS.search(value) is None:
        return value
    value = CREDENTIALS_IN_URL.sub(r"\1***@", value)
    value = SECRET_IN_QUERY.sub(r"\1***", value)
    return CONTROL_CHARACTERS.sub(escape, value)


def escape(match: re.Match[str]) -> str:
    """The one character that was matched, as Python writes it in ASCII."""
    point = ord(match.group())
    if point <= 0xFF:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"


def storable(text: str, max_chars: int = 8_192) -> str:
    """The first characters, with replacements for NUL and lone surrogates."""
    return text[:max_chars].encode("utf-8", "replace").decode().replace("\x00", REPLACEMENT)


def truncated(text: str, max_chars: int) -> str:
    """The text as it can be stored; an ellipsis says that it goes on."""
    if len(text) <= max_chars:
        return storable(text, max_chars)
    return storable(text, max_chars - 1) + "…"


def is_storable(text: str) -> bool:
    """Whether PostgreSQL can hold the text; lone surrogates cannot come out of JSON."""
    return "\x00" not in text


def unaltered(text: str | None, longest: int) -> str | None:
    """The text if it can be stored exactly as it is; None otherwise."""
    if text is None or len(text) > longest or not text.isascii() or not text.isprintable():
        return None
    return text


# Spreadsheets find a formula behind blanks of every kind, lines before it, and marks without a
# width.
_FORMULA = re.compile(
    r"(?:^|[\r\n])[\s\u00a0\u200b-\u200f\u2060\ufeff]*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
)
_ORDINARY = re.compile(rf"https?://[^\"{DISRUPTIVE}]*+")


def site_in_line(line: str | bytes) -> str | None:
    """The site that a line of a list names; None for a blank line or a comment."""
    text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
    text = text.removeprefix("\ufeff").partition(" #")[0].strip()
    return text if text and not text.startswith("#") else None


def csv_cell(text: str) -> str:
    if not text or _ORDINARY.fullmatch(text):
        return f'"{text}"'
    if _FORMULA.search(text) or text.startswith(("\t", "\r", "\n")):
        text = "'" + text
    return '"' + text.replace('"', '""') + '"'


def is_plain_csv(urls: list[str]) -> bool:
    """Whether all of these are ordinary URLs that need nothing but quotes around them."""
    return all(map(_ORDINARY.fullmatch, urls))


def parse_tag(text: str) -> str:
    """A tag as it is stored, in lower case; TagInvalid if it cannot be one."""
    tag = text.strip().lower()
    if len(tag) > MAX_TAG_CHARS or not re.fullmatch(TAG_PATTERN, tag):
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


def line_diff(before: str, after: str) -> str:
    """The changed part with a few lines around it; `-`, `+` or a blank starts each line.

    Empty if the texts have the same lines. Time and size are bounded: the standard library's
    `difflib` can take minutes for lines that a site chose to make it slow.
    """
    old, new = before.splitlines(), after.splitlines()
    head = _shared_length(old, new)
    tail = _shared_length(old[head:][::-1], new[head:][::-1])
    removed, added = old[head : len(old) - tail], new[head : len(new) - tail]
    if not (removed or added):
        return ""
    lines = [
        *_marked(" ", old[max(0, head - CONTEXT_LINES) : head]),
        *_compared(removed, added),
        *_marked(" ", old[len(old) - tail :][:CONTEXT_LINES]),
    ]
    if len(lines) > MAX_SHOWN_LINES:
        lines = [*lines[:MAX_SHOWN_LINES], "…"]
    return "\n".join(
        line if len(line) <= MAX_LINE_CHARS else line[: MAX_LINE_CHARS - 1] + "…" for line in lines
    )


def _shared_length(first: Sequence[str], second: Sequence[str]) -> int:
    pairs = zip(first, second, strict=False)
    shortest = min(len(first), len(second))
    return next((n for n, (one, other) in enumerate(pairs) if one != other), shortest)


def _marked(mark: str, lines: Sequence[str]) -> list[str]:
    return [mark + line for line in lines]


def _compared(removed: Sequence[str], added: Sequence[str]) -> list[str]:
    # Longer changed parts are shown as removed and added as a whole.
    if max(len(removed), len(added)) > 200:
        return _marked("-", removed) + _marked("+", added)
    return list(_walk(removed, added, _common_lengths(removed, added)))


def _common_lengths(first: Sequence[str], second: Sequence[str]) -> list[list[int]]:
    """For each pair of places, the most lines that the rests of both texts have in common."""
    rows = [[0] * (len(second) + 1)]
    for line in reversed(first):
        below, row = rows[-1], [0] * (len(second) + 1)
        for n in range(len(second) - 1, -1, -1):
            row[n] = below[n + 1] + 1 if line == second[n] else max(below[n], row[n + 1])
        rows.append(row)
    return rows[::-1]


def _walk(
    removed: Sequence[str], added: Sequence[str], common: Sequence[Sequence[int]]
) -> Iterator[str]:
    i = j = 0
    while i < len(removed) and j < len(added):
        if removed[i] == added[j]:
            yield " " + removed[i]
            i, j = i + 1, j + 1
        elif common[i + 1][j] >= common[i][j + 1]:
            yield "-" + removed[i]
            i += 1
        else:
            yield "+" + added[j]
            j += 1
    yield from _marked("-", removed[i:])
    yield from _marked("+", added[j:])
