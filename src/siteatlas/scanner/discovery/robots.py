"""Reads robots.txt as RFC 9309 and Google do: its sitemaps, and its rules for every agent.

`parse_robots` takes bytes, which `probes.py` fetches; what may be done with the content stays text,
which `siteatlas.findings.policies` reads. `RuleSet` says which rule applies to a path:
patterns and paths are compared after normalizing their percent-encoding, and thousands of rules
with wildcards cost a path no more than a few.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from siteatlas.text import storable

MAX_BYTES = 500 * 1024
# No scan reads more documents, and at fifty bytes a line these fill the bytes that are read.
MAX_SITEMAPS = 10_000
# Each may be for thousands of agents.
MAX_USAGE_LINES = 200
# Far more than real files need: rules seldom share their rarest three characters.
MAX_RULES_PER_GRAM = 500
# So many are searched one by one before the path is taken apart.
FEW_GRAMS = 60
DISALLOW_KEYS = frozenset({"disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"})
USAGE_KEYS = frozenset({"content-signal", "content-usage"})


@dataclass(frozen=True, slots=True)
class Rule:
    """One Allow or Disallow line: its pattern as written and its number, from 1 on."""

    pattern: str
    allow: bool
    line: int = 0


@dataclass(frozen=True, slots=True)
class UsageLine:
    """A Content-Signal or Content-Usage line as written, and the agents that it is for."""

    line: int
    key: str
    value: str
    agents: Sequence[str]


def parse_robots(content: bytes) -> Robots:
    """Read the first 500 KiB, whole lines only."""
    parser = _Parser()
    for directive in parse_directives(content):
        parser.parse_line(directive)
    return Robots(
        tuple(parser.sitemaps),
        parser.agents,
        tuple(parser.usage),
        sitemaps_truncated=parser.sitemaps_truncated,
    )


def robots_text(content: bytes) -> str:
    """The text of robots.txt that is read, in the form that can be stored."""
    return storable(_text(_whole_lines(content), "replace"), MAX_BYTES)


class Robots:
    """A robots.txt. `sitemaps_truncated`: it lists more sitemaps than are read."""

    def __init__(
        self,
        sitemaps: tuple[str, ...] = (),
        agents: Mapping[str, _Agent] | None = None,
        usage: tuple[UsageLine, ...] = (),
        *,
        sitemaps_truncated: bool = False,
    ) -> None:
        self.sitemaps = sitemaps
        self.usage = usage
        self.sitemaps_truncated = sitemaps_truncated
        self._agents = agents or {}
        self._compiled: dict[str, AgentRules] = {}

    def group_for(self, *agents: str) -> str | None:
        """Whose groups hold for an agent with these names: those of the first that has some, else
        those of `*`. None if there are neither.
        """
        tokens = (agent_token(agent) for agent in (*agents, "*"))
        return next((token for token in tokens if token in self._agents), None)

    def rules_for(self, *agents: str) -> AgentRules:
        """What holds for an agent (`Name/1.0 (…)` or `Name`), by all names that it answers to."""
        key = self.group_for(*agents) or "*"
        if key not in self._compiled:
            found = self._agents.get(key, _Agent())
            rules = (rule for group in found.groups for rule in group.rules)
            self._compiled[key] = AgentRules(rules, found.crawl_delay)
        return self._compiled[key]

    def allows(self, agent: str, path: str) -> bool:
        """Whether an agent may fetch a path."""
        return self.rules_for(agent).allows(path)

    def rule_for(self, agent: str, path: str) -> Rule | None:
        """The rule, with its line, that decides whether an agent may fetch a path."""
        return self.rules_for(agent).rule_for(path)


class AgentRules:
    """The rules of robots.txt for one agent; without rules, everything is allowed."""

    def __init__(self, rules: Iterable[Rule] = (), crawl_delay: float | None = None) -> None:
        self.rules = tuple(rules)
        self._rules = RuleSet(self.rules)
        self.crawl_delay = crawl_delay

    @property
    def is_truncated(self) -> bool:
        """Whether some rules are ignored because too many wildcard rules are similar."""
        return self._rules.is_truncated

    def rule_for(self, path: str) -> Rule | None:
        """The rule that decides on a path (with its query); None when no rule covers it."""
        # RFC 9309, 2.2.2: itself it cannot disallow.
        return None if path == "/robots.txt" else self._rules.match(path)

    def allows(self, path: str) -> bool:
        """Whether the agent may fetch a path."""
        rule = self.rule_for(path)
        return rule is None or rule.allow


# The RFC knows letters, `_` and `-` only, but `MJ12bot` and `archive.org_bot` are names in use.
_match_token = re.compile(r"[A-Za-z0-9_.-]+").match


def agent_token(agent: str) -> str | None:
    """The name by which an agent is compared; `*` only if nothing or a blank follows."""
    if agent.startswith("*"):
        return "*" if not agent[1:2].strip() else None
    token = _match_token(agent)
    return token.group().lower() if token else None


@dataclass(slots=True, eq=False)
class _Group:
    """Rules that follow one or more User-agent lines, shared by all agents that these name."""

    rules: list[Rule] = field(default_factory=list)


@dataclass(slots=True)
class _Agent:
    """One agent: its groups, which count as one, and its crawl delay."""

    groups: list[_Group] = field(default_factory=list)
    crawl_delay: float | None = None


_replace_undecoded = re.compile(r"[\udc80-\udcff]").sub


class _Parser:
    """Sorts directives into sitemaps and groups. Lines it does not know end no group."""

    def __init__(self) -> None:
        self.sitemaps: dict[str, None] = {}
        self.sitemaps_truncated = False
        self.agents: dict[str, _Agent] = {}
        self.usage: list[UsageLine] = []
        self._usage_of: list[str] = []
        self._group = _Group()
        self._agents_open = False
        self._delay_of: list[_Agent] = []
        self._delay_open = False

    def parse_line(self, directive: Directive) -> None:
        if directive.key.startswith(("sitemap", "site-map")):
            self._take_sitemap(directive.value)
        elif directive.key in {"user-agent", "useragent", "user agent"}:
            self._take_agent(agent_token(directive.value))
        elif directive.key == "allow" or directive.key in DISALLOW_KEYS:
            self._take_rule(directive)
        elif directive.key in {"crawl-delay", "crawldelay"}:
            self._take_delay(_parse_seconds(directive.value))
        elif directive.key in USAGE_KEYS and len(self.usage) < MAX_USAGE_LINES:
            self.usage.append(UsageLine(*directive, self._usage_of))

    def _take_sitemap(self, value: str) -> None:
        url = _replace_undecoded(lambda match: percent_encoded(match[0]), value)
        if not url or url in self.sitemaps:
            return
        if len(self.sitemaps) < MAX_SITEMAPS:
            self.sitemaps[url] = None
        else:
            self.sitemaps_truncated = True

    def _take_agent(self, token: str | None) -> None:
        if not self._agents_open:
            self._group = _Group()
        if not (self._agents_open and self._delay_open):
            self._delay_of = []
        # Lines share the list: a group may have thousands of both.
        if not self._agents_open or (self.usage and self.usage[-1].agents is self._usage_of):
            self._usage_of = []
        self._agents_open = self._delay_open = True
        if token is not None:
            agent = self.agents.setdefault(token, _Agent())
            if not agent.groups or agent.groups[-1] is not self._group:
                agent.groups.append(self._group)
            self._delay_of.append(agent)
            self._usage_of.append(token)

    def _take_rule(self, directive: Directive) -> None:
        self._agents_open = False
        if directive.value:
            allow = directive.key not in DISALLOW_KEYS
            self._group.rules.append(Rule(directive.value, allow, directive.line))

    def _take_delay(self, seconds: float | None) -> None:
        """Set the delay of the agents named last; the first line counts and ends no list."""
        if seconds is None:
            return
        for agent in self._delay_of:
            agent.crawl_delay = seconds
        self._delay_of = []
        self._delay_open = False


def _parse_seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


class Directive(NamedTuple):
    """One line with a directive: its number from 1, its key in lower case, its value."""

    line: int
    key: str
    value: str


split_lines = re.compile(r"\r\n|\n|\r").split
_match_directive = re.compile(
    r"([a-z][a-z_-]*(?: agent)?)\s*:\s*(.*)", re.DOTALL | re.IGNORECASE
).fullmatch
# Google and crawler-commons forgive a missing colon if the line has exactly two words.
_match_without_colon = re.compile(r"([A-Za-z][A-Za-z_-]*)\s+(\S+)").fullmatch
_is_url = re.compile(r"https?://\S+", re.IGNORECASE).fullmatch


def parse_directives(content: bytes) -> Iterator[Directive]:
    """The lines of a robots.txt that say something, as far as it is read."""
    for number, line in enumerate(split_lines(_text(_whole_lines(content))), start=1):
        # Some are web pages, with `<br>` at the end of a line.
        statement = line[: 16 * 1024].partition("#")[0].partition("<")[0]
        statement = statement.replace("\x00", "").strip()
        # The URL of a sitemap without a key, as crawler-commons accepts it.
        if _is_url(statement) and "sitemap" in statement.lower():
            yield Directive(number, "sitemap", statement)
        elif match := _match_directive(statement) or _match_without_colon(statement):
            yield Directive(number, match[1].lower(), match[2].strip())


def _text(content: bytes, errors: str = "surrogateescape") -> str:
    """UTF-8 with its invalid bytes kept for later, or UTF-16 if the byte order mark says so."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", "replace")
    return content.decode("utf-8", errors).lstrip("\ufeff")


def _whole_lines(content: bytes) -> bytes:
    if len(content) <= MAX_BYTES:
        return content
    content = content[:MAX_BYTES]
    return content[: max(content.rfind(b"\n"), content.rfind(b"\r")) + 1]


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
        frequency = Counter(chain.from_iterable(pattern.grams() for pattern in wildcards))
        for pattern in wildcards:
            rarest = min(pattern.grams(), key=lambda gram: (frequency[gram], gram), default=None)
            home = self._without_gram if rarest is None else self._by_gram[rarest]
            if len(home) < MAX_RULES_PER_GRAM:
                home.append(pattern)
            else:
                self.is_truncated = True

    def _wildcards_for(self, path: str) -> Iterator[_Pattern]:
        yield from self._without_gram
        if len(self._by_gram) <= FEW_GRAMS:
            shared: Iterable[str] = (gram for gram in self._by_gram if gram in path)
        else:
            shared = self._by_gram.keys() & set(trigrams(path))
        for gram in shared:
            yield from self._by_gram[gram]

    def _longest_prefix(self, path: str) -> _Pattern | None:
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


_split_at_stars = re.compile(r"\*+").split


class _Pattern:
    """A rule ready for matching: the texts between its stars, in comparable form."""

    __slots__ = ("anchored", "head", "last", "length", "middle", "rule")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.anchored = rule.pattern.endswith("$")
        body = rule.pattern[:-1] if self.anchored else rule.pattern
        text = comparable(body).replace("$", "%24")
        self.length = len(text) + self.anchored
        self.head, *rest = _split_at_stars(text)
        self.last = rest.pop() if self.anchored and rest else None
        self.middle = [part for part in rest if part]

    @property
    def is_literal(self) -> bool:
        return "*" not in self.rule.pattern

    @property
    def rank(self) -> tuple[int, bool]:
        """The longest pattern decides; at equal length, allow does."""
        return self.length, self.rule.allow

    def grams(self) -> set[str]:
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
    return (text[start : start + 3] for start in range(len(text) - 2))


# Everything but an escape, a reserved or an unreserved character of RFC 3986.
_replace_encodable = re.compile(r"%[0-9A-Fa-f]{2}|[^!#$%&'*+,\-./0-9:;=?@A-Z()\[\]_a-z~]").sub
_is_unreserved = re.compile(r"[A-Za-z0-9._~-]").fullmatch
_is_plain_path = re.compile(r"[!#&'+,\-./0-9:;=?@A-Z()\[\]_a-z~]*").fullmatch


def comparable(text: str) -> str:
    """Text of a path in the encoding in which rules and paths are compared (RFC 9309, 2.2.2).

    Bytes that are not UTF-8 are in the text as `surrogateescape` leaves them.
    """
    return _replace_encodable(_normalize_character, text)


def comparable_path(path: str) -> str:
    """A requested path in that encoding; `*` and `$` have no special meaning in it."""
    if _is_plain_path(path):
        return path
    return comparable(path).replace("*", "%2A").replace("$", "%24")


def _normalize_character(match: re.Match[str]) -> str:
    text = match[0]
    if len(text) == 1:
        return percent_encoded(text)
    character = chr(int(text[1:], 16))
    return character if _is_unreserved(character) else text.upper()


def percent_encoded(character: str) -> str:
    """Percent-encode a character of robots.txt; a lone surrogate is the byte that it represents."""
    try:
        octets = character.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        octets = character.encode("utf-8", "surrogatepass")
    return "".join(f"%{octet:02X}" for octet in octets)
