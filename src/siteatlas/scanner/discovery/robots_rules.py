"""Compiled robots.txt rules: which rule applies to a path, according to RFC 9309.

Patterns and paths are compared after normalizing their percent-encoding. `robots.py` decides which
rules apply to which agent.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

ANY, END = "*", "$"
STARS = re.compile(r"\*+")
GRAM = 3
# Far more than real files need: rules seldom share their rarest three characters.
MAX_RULES_PER_GRAM = 500
# Everything but an escape, a reserved or an unreserved character of RFC 3986.
_TO_ENCODE = re.compile(r"%[0-9A-Fa-f]{2}|[^!#$%&'*+,\-./0-9:;=?@A-Z()\[\]_a-z~]")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")
_PLAIN_PATH = re.compile(r"[!#&'+,\-./0-9:;=?@A-Z()\[\]_a-z~]*")


@dataclass(frozen=True, slots=True)
class Rule:
    """One Allow or Disallow line: its pattern as written and its number, from 1 on."""

    pattern: str
    allow: bool
    line: int = 0


def comparable(text: str) -> str:
    """Text of a path in the encoding in which rules and paths are compared (RFC 9309, 2.2.2).

    Bytes that are not UTF-8 are in the text as `surrogateescape` leaves them.
    """
    return _TO_ENCODE.sub(_normalize_character, text)


def comparable_path(path: str) -> str:
    """A requested path in that encoding; `*` and `$` have no special meaning in it."""
    if _PLAIN_PATH.fullmatch(path):
        return path
    return comparable(path).replace(ANY, "%2A").replace(END, "%24")


def _normalize_character(match: re.Match[str]) -> str:
    """Normalize the percent-encoding of one character in a robots.txt rule or path."""
    text = match[0]
    if len(text) == 1:
        return percent_encoded(text)
    character = chr(int(text[1:], 16))
    return character if _UNRESERVED.fullmatch(character) else text.upper()


def percent_encoded(character: str) -> str:
    """Percent-encode a character of robots.txt; a lone surrogate is the byte that it represents."""
    try:
        octets = character.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        octets = character.encode("utf-8", "surrogatepass")
    return "".join(f"%{octet:02X}" for octet in octets)


class _Pattern:
    """A rule ready for matching: the texts between its stars, in comparable form."""

    __slots__ = ("anchored", "head", "last", "length", "middle", "rule")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.anchored = rule.pattern.endswith(END)
        body = rule.pattern[:-1] if self.anchored else rule.pattern
        text = comparable(body).replace(END, "%24")
        self.length = len(text) + self.anchored
        self.head, *rest = STARS.split(text)
        self.last = rest.pop() if self.anchored and rest else None
        self.middle = [part for part in rest if part]

    @property
    def is_literal(self) -> bool:
        """Whether it has no star."""
        return ANY not in self.rule.pattern

    @property
    def rank(self) -> tuple[int, bool]:
        """The longest pattern decides; at equal length, allow does."""
        return self.length, self.rule.allow

    def grams(self) -> set[str]:
        """All runs of three characters that a path must contain for this rule to match."""
        texts = (self.head, *self.middle, self.last or "")
        return set(chain.from_iterable(map(trigrams, texts)))

    def matches(self, path: str) -> bool:
        """Whether it matches a path. Each part is matched at its first place: no backtracking."""
        if not path.startswith(self.head):
            return False
        position = len(self.head)
        for part in self.middle:
            position = path.find(part, position) + len(part)
            if position < len(part):
                return False
        if self.last is not None:
            return len(path) - len(self.last) >= position and path.endswith(self.last)
        return not self.anchored or position == len(path)


def trigrams(text: str) -> Iterator[str]:
    """All runs of three characters in a robots.txt pattern or path, for the index of rules."""
    return (text[start : start + GRAM] for start in range(len(text) - GRAM + 1))


class RuleSet:
    """The rules of one group. What a path costs depends on its length, not on their number.

    Prefixes are found by bisection; of the patterns with a star only those are tried that share
    their rarest three characters with the path, or that have no three in a row. Of those with the
    same three, and of those with none, only the first 500 count; `is_truncated` if there are more.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        patterns = [_Pattern(rule) for rule in _distinct(rules)]
        literal = [pattern for pattern in patterns if pattern.is_literal]
        self._exact = _best_by_text(pattern for pattern in literal if pattern.anchored)
        self._prefixes = _best_by_text(pattern for pattern in literal if not pattern.anchored)
        self._heads = sorted(self._prefixes)
        self._parents = _parents(self._heads)
        self._by_gram: dict[str, list[_Pattern]] = defaultdict(list)
        self._without_gram: list[_Pattern] = []
        self.is_truncated = False
        self._index_wildcards([pattern for pattern in patterns if not pattern.is_literal])

    def match(self, path: str) -> Rule | None:
        """The rule that decides on a path; None if no rule matches it."""
        path = comparable_path(path)
        found = [pattern for pattern in self._wildcards_for(path) if pattern.matches(path)]
        exact = self._exact.get(path)
        if exact is not None:
            found.append(exact)
        prefix = self._longest_prefix(path)
        if prefix is not None:
            found.append(prefix)
        if not found:
            return None
        return max(found, key=lambda pattern: (pattern.rank, -pattern.rule.line)).rule

    def _index_wildcards(self, wildcards: list[_Pattern]) -> None:
        """Index each rule with a star by its rarest three characters."""
        frequency = Counter(chain.from_iterable(pattern.grams() for pattern in wildcards))
        for pattern in wildcards:
            rarest = min(pattern.grams(), key=lambda gram: (frequency[gram], gram), default=None)
            home = self._without_gram if rarest is None else self._by_gram[rarest]
            if len(home) < MAX_RULES_PER_GRAM:
                home.append(pattern)
            else:
                self.is_truncated = True

    def _wildcards_for(self, path: str) -> Iterator[_Pattern]:
        """The rules with a star that may match this path."""
        yield from self._without_gram
        if self._by_gram:
            for gram in self._by_gram.keys() & set(trigrams(path)):
                yield from self._by_gram[gram]

    def _longest_prefix(self, path: str) -> _Pattern | None:
        """The longest rule without a star that matches this path."""
        index = bisect_right(self._heads, path) - 1
        while index >= 0 and not path.startswith(self._heads[index]):
            index = self._parents[index]
        return self._prefixes[self._heads[index]] if index >= 0 else None


def _distinct(rules: Iterable[Rule]) -> list[Rule]:
    """Each rule once, with the line that has it first."""
    found: dict[tuple[str, bool], Rule] = {}
    for rule in rules:
        found.setdefault((rule.pattern, rule.allow), rule)
    return list(found.values())


def _best_by_text(patterns: Iterable[_Pattern]) -> dict[str, _Pattern]:
    """The rule that takes precedence for each prefix."""
    best: dict[str, _Pattern] = {}
    for pattern in patterns:
        known = best.get(pattern.head)
        if known is None or pattern.rank > known.rank:
            best[pattern.head] = pattern
    return best


def _parents(heads: list[str]) -> list[int]:
    """For each of the sorted texts the position of its longest prefix among them, else -1."""
    parents: list[int] = []
    open_heads: list[int] = []
    for position, head in enumerate(heads):
        while open_heads and not head.startswith(heads[open_heads[-1]]):
            open_heads.pop()
        parents.append(open_heads[-1] if open_heads else -1)
        open_heads.append(position)
    return parents
