"""Reads robots.txt: the sitemaps it names, and what it lets us fetch, as RFC 9309 and Google do.

Takes bytes; fetching is `discovery.py`'s.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_BYTES = 500 * 1024
MAX_LINE_CHARS = 16 * 1024
MAX_SITEMAPS = 1000
MAX_RULES = 10_000
ANY_AGENT = "*"
LINE_END = re.compile(r"\r\n|\n|\r")
DIRECTIVE = re.compile(r"([A-Za-z][A-Za-z_-]*(?: agent)?)\s*:\s*(.*)", re.DOTALL)
# Google and crawler-commons forgive a missing colon if the line has exactly two words.
WITHOUT_COLON = re.compile(r"([A-Za-z][A-Za-z_-]*)\s+(\S+)")
BARE_URL = re.compile(r"https?://\S+", re.IGNORECASE)
SITEMAP_KEYS = ("sitemap", "site-map")
AGENT_KEYS = frozenset({"user-agent", "useragent", "user agent"})
DISALLOW_KEYS = frozenset({"disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"})
DELAY_KEYS = frozenset({"crawl-delay", "crawldelay"})
RULE_KEYS = DISALLOW_KEYS | DELAY_KEYS | {"allow"}
AGENT_TOKEN = re.compile(r"[A-Za-z_-]+")
STARS = re.compile(r"\*+")


@dataclass(frozen=True, slots=True)
class Rule:
    """One path pattern; the longest one that matches decides."""

    pattern: str
    allow: bool

    def matches(self, path: str) -> bool:
        """Whether the pattern covers a path; `*` is anything, `$` at the end is the end.

        Takes each part at its first place, which needs no way back, whatever the pattern.
        """
        anchored = self.pattern.endswith("$")
        first, *parts = STARS.split(self.pattern[:-1] if anchored else self.pattern)
        if not path.startswith(first):
            return False
        position = len(first)
        last = parts.pop() if anchored and parts else None
        for part in parts:
            position = path.find(part, position) + len(part)
            if position < len(part):
                return False
        if last is not None:
            return len(path) - len(last) >= position and path.endswith(last)
        return not anchored or position == len(path)


@dataclass(slots=True, eq=False)
class _Group:
    is_named: bool = False
    rules: list[Rule] = field(default_factory=list)
    crawl_delay: float | None = None


@dataclass(frozen=True, slots=True)
class Robots:
    """What a site says to us; without anything said, everything is allowed."""

    sitemaps: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    crawl_delay: float | None = None

    def allows(self, path: str) -> bool:
        """Whether we may fetch a path; at equal length, allow wins."""
        matching = [rule for rule in self.rules if rule.matches(path)]
        if not matching:
            return True
        return max(matching, key=lambda rule: (len(rule.pattern), rule.allow)).allow


def parse_robots(content: bytes, user_agent: str) -> Robots:
    """Read the first 500 KiB, whole lines only; the group of our agent counts before `*`."""
    sitemaps: dict[str, None] = {}
    ours, others = _Group(), _Group()
    wanted = {ANY_AGENT: others, _agent_token(user_agent): ours}
    current: list[_Group] = []
    agents_open = False
    for key, value in _directives(content):
        if key.startswith(SITEMAP_KEYS):
            if value and len(sitemaps) < MAX_SITEMAPS:
                sitemaps.setdefault(value)
        elif key in AGENT_KEYS:
            current = current if agents_open else []
            group = wanted.get(_agent_token(value))
            if group is not None and group not in current:
                group.is_named = True
                current.append(group)
            agents_open = True
        elif key in RULE_KEYS:
            agents_open = False
            for group in current:
                _add_to_group(group, key, value)
    chosen = ours if ours.is_named else others
    return Robots(tuple(sitemaps), tuple(chosen.rules), chosen.crawl_delay)


def _directives(content: bytes) -> Iterator[tuple[str, str]]:
    text = _whole_lines(content).decode(_encoding(content), "replace").lstrip("\ufeff")
    for line in LINE_END.split(text):
        statement = line[:MAX_LINE_CHARS].partition("#")[0].replace("\x00", "").strip()
        if _is_bare_sitemap(statement):
            yield SITEMAP_KEYS[0], statement
        elif match := DIRECTIVE.fullmatch(statement) or WITHOUT_COLON.fullmatch(statement):
            yield match[1].lower(), match[2].strip()


def _is_bare_sitemap(statement: str) -> bool:
    """A URL without a key, which crawler-commons takes for a sitemap if its name says so."""
    return BARE_URL.fullmatch(statement) is not None and "sitemap" in statement.lower()


def _encoding(content: bytes) -> str:
    return "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"


def _whole_lines(content: bytes) -> bytes:
    if len(content) <= MAX_BYTES:
        return content
    content = content[:MAX_BYTES]
    return content[: max(content.rfind(b"\n"), content.rfind(b"\r")) + 1]


def _agent_token(agent: str) -> str:
    if agent.startswith(ANY_AGENT):
        return ANY_AGENT
    token = AGENT_TOKEN.match(agent)
    return token.group().lower() if token else ""


def _add_to_group(group: _Group, key: str, value: str) -> None:
    if key in DELAY_KEYS:
        group.crawl_delay = _seconds(value)
    elif value and len(group.rules) < MAX_RULES:
        if key in DISALLOW_KEYS:
            group.rules.append(Rule(value, allow=False))
        elif key == "allow":
            group.rules.append(Rule(value, allow=True))


def _seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
