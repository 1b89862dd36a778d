"""Reads robots.txt: the sitemaps it names, and what it lets us fetch, as RFC 9309 and Google do.

Takes bytes; fetching is `discovery.py`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_BYTES = 500 * 1024
MAX_LINE_CHARS = 16 * 1024
MAX_SITEMAPS = 1000
MAX_RULES = 10_000
ANY_AGENT = "*"
LINE_END = re.compile(r"\r\n|\n|\r")
# A colon may be missing, or stand away from its key.
DIRECTIVE = re.compile(r"([A-Za-z][A-Za-z_-]*(?: agent)?)\s*(?::|\s)\s*(.*)", re.DOTALL)
SITEMAP_KEYS = frozenset({"sitemap", "sitemaps", "site-map"})
AGENT_KEYS = frozenset({"user-agent", "useragent", "user agent"})
DISALLOW_KEYS = frozenset({"disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"})
DELAY_KEYS = frozenset({"crawl-delay", "crawldelay"})
AGENT_TOKEN = re.compile(r"[A-Za-z_-]+")


@dataclass(frozen=True, slots=True)
class Rule:
    """One path pattern; the longest one that matches decides."""

    pattern: str
    allow: bool

    def matches(self, path: str) -> bool:
        """Whether the pattern covers a path; `*` is anything, `$` at the end is the end."""
        anchored = self.pattern.endswith("$")
        body = self.pattern[:-1] if anchored else self.pattern
        expression = ".*".join(map(re.escape, re.split(r"\*+", body)))
        return re.match(expression + ("$" if anchored else ""), path, re.DOTALL) is not None


@dataclass(slots=True)
class _Group:
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
    groups: dict[str, _Group] = {}
    current: list[_Group] = []
    agents_open = False
    for key, value in _directives(content):
        if key in SITEMAP_KEYS:
            if value and len(sitemaps) < MAX_SITEMAPS:
                sitemaps.setdefault(value)
        elif key in AGENT_KEYS:
            current = current if agents_open else []
            current.append(groups.setdefault(_agent_token(value), _Group()))
            agents_open = True
        else:
            agents_open = False
            for group in current:
                _add_to_group(group, key, value)
    ours = groups.get(_agent_token(user_agent)) or groups.get(ANY_AGENT) or _Group()
    return Robots(tuple(sitemaps), tuple(ours.rules), ours.crawl_delay)


def _directives(content: bytes) -> Iterator[tuple[str, str]]:
    text = _whole_lines(content).decode("utf-8", "replace").removeprefix("\ufeff")
    for line in LINE_END.split(text):
        statement = line[:MAX_LINE_CHARS].partition("#")[0].replace("\x00", "").strip()
        match = DIRECTIVE.fullmatch(statement)
        if match:
            yield match[1].lower(), match[2].strip()


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
