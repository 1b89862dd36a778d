"""Words of a closed set that people type, such as those of a filter, and words for numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from siteatlas.errors import InputError


def parse_choice(
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


def complete_choice(*known: Iterable[str]) -> Callable[[str], list[str]]:
    """The completion of a word of these sets by the shell."""
    words = [str(word) for group in known for word in group]

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete.lower())]

    return complete


def alternatives(known: Iterable[str]) -> str:
    """The words of a set, as the help of an option shows them."""
    return "|".join(known)


def counted(number: int, noun: str) -> str:
    """`1 URL`, `1,200 URLs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
