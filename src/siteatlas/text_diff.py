"""The difference between two versions of a text, line by line, in bounded time and size.

The standard library's `difflib` can take minutes for lines that a site chose to make it slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
