"""Converts foreign text to what PostgreSQL can store."""

from __future__ import annotations

MAX_TEXT_CHARS = 8_192


def storable(text: str, longest: int = MAX_TEXT_CHARS) -> str:
    """The text without NUL and lone surrogates, and no longer than it may be."""
    cut = text[:longest]
    return cut.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def unaltered(text: str | None, longest: int) -> str | None:
    """The text if it can be stored exactly as it is; None otherwise."""
    if text is None or len(text) > longest or not text.isascii() or not text.isprintable():
        return None
    return text
