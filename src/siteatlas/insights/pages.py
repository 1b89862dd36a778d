"""Keyset pagination: a page of a list, and the opaque cursor of the next page.

A cursor belongs to one list with its filters. It contains a position, not a secret.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

import orjson
import xxhash

from siteatlas.errors import CursorInvalid
from siteatlas.safe_text import is_storable

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
MAX_CURSOR_CHARS = 2048
MIN_BIGINT = -(2**63)
MAX_BIGINT = 2**63 - 1

_INTEGER = re.compile(r"-?[0-9]{1,19}")

T = TypeVar("T")
S = TypeVar("S")
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One slice of a list. `examined` counts the rows that a filter had to look at."""

    items: list[T]
    next_cursor: str | None
    examined: int | None = None


@dataclass(frozen=True, slots=True)
class CursorScope:
    """The list that a cursor belongs to: its name and its filters."""

    name: str
    filters: tuple[object, ...] = ()

    @property
    def mark(self) -> str:
        """A short fingerprint of list and filters."""
        text = "\x1f".join([self.name, *(repr(value) for value in self.filters)])
        return xxhash.xxh3_64_hexdigest(text.encode("utf-8", "surrogatepass"))

    def write(self, *key: object) -> str:
        """The cursor that stands behind the row with this key."""
        raw = orjson.dumps([self.mark, *(str(part) for part in key)])
        return urlsafe_b64encode(raw).rstrip(b"=").decode()

    def read(self, cursor: str | None, parse: Callable[[Sequence[str]], K]) -> K | None:
        """The key inside a cursor of this list; None without a cursor, CursorInvalid for junk."""
        if cursor is None:
            return None
        try:
            mark, *key = _cursor_parts(cursor)
            if mark != self.mark:
                raise CursorInvalid
            return parse(key)
        except (ValueError, IndexError) as error:
            raise CursorInvalid from error


def _cursor_parts(cursor: str) -> list[str]:
    """The mark and the key inside a pagination cursor; CursorInvalid if it is malformed."""
    if len(cursor) > MAX_CURSOR_CHARS:
        raise CursorInvalid
    padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
    parts = orjson.loads(urlsafe_b64decode(padded))
    if not isinstance(parts, list) or not all(_is_cursor_part(part) for part in parts):
        raise CursorInvalid
    return parts


def _is_cursor_part(part: object) -> bool:
    """Whether a part of a pagination cursor is text that a read statement can compare with."""
    return isinstance(part, str) and is_storable(part)


def bigint_key(parts: Sequence[str]) -> int:
    """The key of a list that is ordered by one 64-bit number."""
    (number,) = parts
    return parse_bigint(number)


def uuid_key(parts: Sequence[str]) -> UUID:
    """The key of a list that is ordered by one UUID."""
    (ident,) = parts
    return UUID(ident)


def text_key(parts: Sequence[str]) -> str:
    """The key of a list that is ordered by one text."""
    (text,) = parts
    return text


def parse_bigint(text: str) -> int:
    """Parse a number in a cursor, or of a job to look up; ValueError if it exceeds 64 bits."""
    if not _INTEGER.fullmatch(text):
        raise ValueError("not a 64-bit number")
    number = int(text)
    if not MIN_BIGINT <= number <= MAX_BIGINT:
        raise ValueError("not a 64-bit number")
    return number


def page_size(limit: int | None) -> int:
    """The requested number of items, at most `MAX_LIMIT`; `DEFAULT_LIMIT` if None."""
    return max(1, min(DEFAULT_LIMIT if limit is None else limit, MAX_LIMIT))
