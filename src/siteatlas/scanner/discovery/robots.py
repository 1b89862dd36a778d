"""Reads robots.txt as RFC 9309 and Google do: its sitemaps, and its rules for every agent.

Takes bytes; `probes.py` fetches them, `robots_rules.py` matches paths.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from siteatlas.text import storable

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


MAX_BYTES = 500 * 1024
MAX_LINE_CHARS = 16 * 1024
# No scan reads more documents, and at fifty bytes a line these fill the bytes that are read.
MAX_SITEMAPS = 10_000
ANY_AGENT = "*"
LINE_END = re.compile(r"\r\n|\n|\r")
DIRECTIVE = re.compile(r"([a-z][a-z_-]*(?: agent)?)\s*:\s*(.*)", re.DOTALL | re.IGNORECASE)
# Google and crawler-commons forgive a missing colon if the line has exactly two words.
WITHOUT_COLON = re.compile(r"([A-Za-z][A-Za-z_-]*)\s+(\S+)")
BARE_URL = re.compile(r"https?://\S+", re.IGNORECASE)
SITEMAP_KEYS = ("sitemap", "site-map")
AGENT_KEYS = frozenset({"user-agent", "useragent", "user agent"})
DISALLOW_KEYS = frozenset({"disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"})
RULE_KEYS = DISALLOW_KEYS | {"allow"}
DELAY_KEYS = frozenset({"crawl-delay", "crawldelay"})
# The RFC knows letters, `_` and `-` only, but `MJ12bot` and `archive.org_bot` are names in use.
AGENT_TOKEN = re.compile(r"[A-Za-z0-9_.-]+")
UNDECODED_BYTE = re.compile(r"[\udc80-\udcff]")


class Directive(NamedTuple):
    """One line with a directive: its number from 1, its key in lower case, its value."""

    line: int
    key: str
    value: str


class AgentRules:
    """The rules of robots.txt for one agent; without rules, everything is allowed."""

    def __init__(self, rules: Iterable[Rule] = (), crawl_delay: float | None = None) -> None:
        self._rules = RuleSet(rules)
        self.crawl_delay = crawl_delay

    @property
    def is_truncated(self) -> bool:
        """Whether some rules are ignored because too many wildcard rules are similar."""
        return self._rules.is_truncated

    def rule_for(self, path: str) -> Rule | None:
        """The rule that decides on a path (with its query); None when no rule covers it."""
        return self._rules.match(path)

    def allows(self, path: str) -> bool:
        """Whether the agent may fetch a path."""
        rule = self.rule_for(path)
        return rule is None or rule.allow


@dataclass(slots=True, eq=False)
class _Group:
    """Rules that follow one or more User-agent lines, shared by all agents that these name."""

    rules: list[Rule] = field(default_factory=list)


@dataclass(slots=True)
class _Agent:
    """One agent: its groups, which count as one, and its crawl delay."""

    groups: list[_Group] = field(default_factory=list)
    crawl_delay: float | None = None


class Robots:
    """A robots.txt. `sitemaps_truncated`: it lists more sitemaps than are read."""

    def __init__(
        self,
        sitemaps: tuple[str, ...] = (),
        agents: Mapping[str, _Agent] | None = None,
        *,
        sitemaps_truncated: bool = False,
    ) -> None:
        self.sitemaps = sitemaps
        self.sitemaps_truncated = sitemaps_truncated
        self._agents = agents or {}
        self._compiled: dict[str, AgentRules] = {}

    def rules_for(self, agent: str) -> AgentRules:
        """What holds for an agent (`Name/1.0 (…)` or `Name`): its own groups, else those of `*`."""
        token = agent_token(agent)
        key = token if token is not None and token in self._agents else ANY_AGENT
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


def agent_token(agent: str) -> str | None:
    """The name by which an agent is compared; `*` only if nothing or a blank follows."""
    if agent.startswith(ANY_AGENT):
        return ANY_AGENT if not agent[1:2].strip() else None
    token = AGENT_TOKEN.match(agent)
    return token.group().lower() if token else None


def parse_robots(content: bytes) -> Robots:
    """Read the first 500 KiB, whole lines only."""
    parser = _Parser()
    for directive in _parse_directives(content):
        parser.parse_line(directive)
    return Robots(
        tuple(parser.sitemaps), parser.agents, sitemaps_truncated=parser.sitemaps_truncated
    )


class _Parser:
    """Sorts directives into sitemaps and groups. Lines it does not know end no group."""

    def __init__(self) -> None:
        self.sitemaps: dict[str, None] = {}
        self.sitemaps_truncated = False
        self.agents: dict[str, _Agent] = {}
        self._group = _Group()
        self._agents_open = False
        self._delay_of: list[_Agent] = []
        self._delay_open = False

    def parse_line(self, directive: Directive) -> None:
        """Process the directive of the next line."""
        if directive.key.startswith(SITEMAP_KEYS):
            self._take_sitemap(directive.value)
        elif directive.key in AGENT_KEYS:
            self._take_agent(agent_token(directive.value))
        elif directive.key in RULE_KEYS:
            self._take_rule(directive)
        elif directive.key in DELAY_KEYS:
            self._take_delay(_parse_seconds(directive.value))

    def _take_sitemap(self, value: str) -> None:
        """Add the URL of a Sitemap line, up to the maximum."""
        url = UNDECODED_BYTE.sub(lambda match: percent_encoded(match[0]), value)
        if not url or url in self.sitemaps:
            return
        if len(self.sitemaps) < MAX_SITEMAPS:
            self.sitemaps[url] = None
        else:
            self.sitemaps_truncated = True

    def _take_agent(self, token: str | None) -> None:
        """Open a group at a User-agent line, or add the agent to the group just opened."""
        if not self._agents_open:
            self._group = _Group()
        if not (self._agents_open and self._delay_open):
            self._delay_of = []
        self._agents_open = self._delay_open = True
        if token is not None:
            agent = self.agents.setdefault(token, _Agent())
            if not agent.groups or agent.groups[-1] is not self._group:
                agent.groups.append(self._group)
            self._delay_of.append(agent)

    def _take_rule(self, directive: Directive) -> None:
        """Add an Allow or Disallow line to the open group; an empty one is no rule."""
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


def _parse_directives(content: bytes) -> Iterator[Directive]:
    """The directives of robots.txt, one for each line that has one."""
    for number, line in enumerate(LINE_END.split(_text(_whole_lines(content))), start=1):
        statement = line[:MAX_LINE_CHARS].partition("#")[0].replace("\x00", "").strip()
        if _is_bare_sitemap(statement):
            yield Directive(number, SITEMAP_KEYS[0], statement)
        elif match := DIRECTIVE.fullmatch(statement) or WITHOUT_COLON.fullmatch(statement):
            yield Directive(number, match[1].lower(), match[2].strip())


def _is_bare_sitemap(statement: str) -> bool:
    """Whether a line is the URL of a sitemap without a key, as crawler-commons accepts it."""
    return BARE_URL.fullmatch(statement) is not None and "sitemap" in statement.lower()


def robots_text(content: bytes) -> str:
    """The text of robots.txt that is read, in the form that can be stored."""
    return storable(_text(_whole_lines(content), "replace"), MAX_BYTES)


def _text(content: bytes, errors: str = "surrogateescape") -> str:
    """UTF-8 with its invalid bytes kept for later, or UTF-16 if the byte order mark says so."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", "replace")
    return content.decode("utf-8", errors).lstrip("\ufeff")


def _whole_lines(content: bytes) -> bytes:
    """The content of robots.txt up to the size limit, without a line that exceeds it."""
    if len(content) <= MAX_BYTES:
        return content
    content = content[:MAX_BYTES]
    return content[: max(content.rfind(b"\n"), content.rfind(b"\r")) + 1]


def _parse_seconds(value: str) -> float | None:
    """The value of a Crawl-delay line; None if it is not a valid number."""
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
