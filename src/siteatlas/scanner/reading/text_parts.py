"""Splits text into parts that take little time to parse, so that no step blocks the event loop.

Parsing time depends on the number of tags, references and tiny entries, not on the text length.
"""

from __future__ import annotations

from collections.abc import Iterator

PART_CHARS = 16 * 1024
DENSE_PART_CHARS = 4 * 1024
# In real documents, entries and references are longer than this on average.
CHARS_PER_MARK = 10


def split_text(text: str, mark: str) -> Iterator[tuple[str, bool]]:
    """The parts of a text, smaller ones if this mark is frequent, and whether each is the last."""
    return _parts(text, DENSE_PART_CHARS if is_dense(text, mark) else PART_CHARS)


def split_if_dense(text: str, mark: str) -> Iterator[tuple[str, bool]]:
    """The text in one part, or in several if this mark is frequent, and whether it is the last."""
    return _parts(text, DENSE_PART_CHARS if is_dense(text, mark) else len(text))


def split_between_tags(text: str) -> Iterator[tuple[str, bool]]:
    """Like `split_text`, but no part ends inside a tag."""
    size = DENSE_PART_CHARS if is_dense(text, "<") else PART_CHARS
    start = 0
    while (end := text.find(">", start + size) + 1) and end < len(text):
        yield text[start:end], False
        start = end
    yield text[start:], True


def is_dense(text: str, mark: str) -> bool:
    """Whether a mark is so frequent in a text that reading it takes long."""
    return len(text) > DENSE_PART_CHARS and text.count(mark) * CHARS_PER_MARK > len(text)


def _parts(text: str, size: int) -> Iterator[tuple[str, bool]]:
    """The parts of a text, each of this size except the last; at least one part."""
    if len(text) <= size:
        yield text, True
        return
    for start in range(0, len(text), size):
        yield text[start : start + size], start + size >= len(text)
