"""CSV cells that no spreadsheet interprets as a formula."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

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


CONTEXT_LINES = 3
# Longer changed parts are shown as removed and added as a whole, without comparing their lines.
MAX_COMPARED_LINES = 200
MAX_SHOWN_LINES = 500
MAX_LINE_CHARS = 500
SHORTENED = "…"


def line_diff(before: str, after: str) -> str:
    """The changed part with a few lines around it; `-`, `+` or a blank starts each line.

    Empty if the texts have the same lines.
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
        lines = [*lines[:MAX_SHOWN_LINES], SHORTENED]
    return "\n".join(line if len(line) <= MAX_LINE_CHARS else _cut(line) for line in lines)


def _cut(line: str) -> str:
    """The beginning of a long line of a diff."""
    return line[: MAX_LINE_CHARS - 1] + SHORTENED


def _shared_length(first: Sequence[str], second: Sequence[str]) -> int:
    """How many lines two texts share from their beginning."""
    pairs = zip(first, second, strict=False)
    shortest = min(len(first), len(second))
    return next((n for n, (one, other) in enumerate(pairs) if one != other), shortest)


def _marked(mark: str, lines: Sequence[str]) -> list[str]:
    """Lines of a diff behind the mark that says what happened to them."""
    return [mark + line for line in lines]


def _compared(removed: Sequence[str], added: Sequence[str]) -> list[str]:
    """The changed parts of two texts, with the lines that both have in the same order."""
    if max(len(removed), len(added)) > MAX_COMPARED_LINES:
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
    """The lines of both parts, marked; removed lines come before added ones."""
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


# What spreadsheets look past before they find a formula: blanks of every kind, lines before it,
# and marks without a width.
_BLANKS = r"[\s\u00a0\u200b-\u200f\u2060\ufeff]*"
_FORMULA = re.compile(rf"(?:^|[\r\n]){_BLANKS}[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_FIRST_BLANK = re.compile(r"[\t\r\n]")
_ORDINARY = re.compile(rf"https?://[^\"{DISRUPTIVE}]*+")


def csv_cell(text: str) -> str:
    """One quoted cell; a text that a spreadsheet would calculate starts with an apostrophe."""
    if not text or _ORDINARY.fullmatch(text):
        return f'"{text}"'
    if _FORMULA.search(text) or _FIRST_BLANK.match(text):
        text = "'" + text
    return '"' + text.replace('"', '""') + '"'


def is_plain_csv(urls: list[str]) -> bool:
    """Whether all of these are ordinary URLs that need nothing but quotes around them."""
    return all(map(_ORDINARY.fullmatch, urls))
