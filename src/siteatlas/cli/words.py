"""Words of a closed set that people type, such as those of a filter."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from siteatlas.errors import InputError


def read_word(
    typed: str | None, known: type[StrEnum], what: str, aliases: Mapping[str, str] | None = None
) -> str | None:
    """The known word that was typed, or that an older word stands for; None if none was typed."""
    if typed is None:
        return None
    older = aliases or {}
    lowered = typed.strip().lower()
    try:
        return known(older.get(lowered, lowered)).value
    except ValueError as error:
        words = ", ".join([*known, *older])
        raise InputError(f"There is no {what} {typed!r}. Known: {words}.") from error
