"""CSV cells that no spreadsheet interprets as a formula."""

from __future__ import annotations

import re

from siteatlas.safe_text import DISRUPTIVE

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
