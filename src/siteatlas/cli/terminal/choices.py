"""Choices that users type, such as filter values, and the formatting of counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def complete_choice(*known: Iterable[str]) -> Callable[[str], list[str]]:
    """Shell completion for an option that takes one of these words."""
    words = [str(word) for group in known for word in group]

    def complete(incomplete: str) -> list[str]:
        """The choices that a word on the command line can be completed to."""
        return [word for word in words if word.startswith(incomplete.lower())]

    return complete


def alternatives(known: Iterable[str]) -> str:
    """The words of a set, as the help of an option shows them."""
    return "|".join(known)


def counted(number: int, noun: str) -> str:
    """`1 URL`, `1,200 URLs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
