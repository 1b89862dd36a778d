"""Who may fetch what, and for which use: the text of a robots.txt, judged for agents by name.

A pure function of stored text: an answer can be given again when the list of agents has grown.
Rules are parsed and matched in `siteatlas.scanner.discovery.robots`, as for our own scans.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from functools import cache
from importlib.resources import files
from itertools import islice

from siteatlas.scanner.discovery.robots import (
    AgentRules,
    Rule,
    UsageLine,
    agent_token,
    comparable,
    comparable_path,
    parse_robots,
    split_lines,
)
from siteatlas.text import truncated

OPENED, CLOSED = "robots-opened", "robots-closed"
MAX_LINE_CHARS = 300
# Of the agents that a Content-Signal line is for; the rest of thousands says nothing more.
MAX_NAMES = 100
# Of such a line; fewer than ten have been defined by anybody.
MAX_VALUES = 20
# Rules that only one of two texts has; a text in which more differ was replaced as a whole.
MAX_COMPARED_RULES = 1_000


class Purpose(StrEnum):
    """What an agent fetches for."""

    SEARCH = "search"
    AI_SEARCH = "ai_search"
    AI_TRAINING = "ai_training"
    USER_ACTION = "user_action"
    ARCHIVE = "archive"


@dataclass(frozen=True, slots=True)
class Agent:
    """A name that robots.txt may have rules for. `follows`: whose rules hold without its own."""

    name: str
    purpose: Purpose | None = None
    operator: str | None = None
    follows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentList:
    """The known agents, by purpose, and the day of what is known about them."""

    as_of: date
    agents: tuple[Agent, ...]

    def find(self, name: str) -> Agent:
        """The agent of this name; one that is not known has no purpose."""
        token = agent_token(name)
        return next((one for one in self.agents if one.name.lower() == token), Agent(name))


@cache
def known_agents() -> AgentList:
    """The agents of `agents.toml`."""
    data = tomllib.loads(files(__package__).joinpath("agents.toml").read_text("utf-8"))
    follows = data["follows"]
    agents = (
        Agent(name, purpose, operator, tuple(follows.get(name, ())))
        for purpose in Purpose
        for name, operator in data[purpose].items()
    )
    return AgentList(data["as_of"], tuple(agents))


@dataclass(frozen=True, slots=True)
class Usage:
    """What a Content-Signal or Content-Usage line says, and what is wrong with it, in sentences."""

    line: int
    text: str
    agents: list[str]
    path: str | None
    values: dict[str, str]
    invalid: list[str]
    contradicts: list[str]


_Content = frozenset[tuple[str, bool]]


class Policy:
    """The rules of one robots.txt, for any agent."""

    def __init__(self, text: str) -> None:
        self._robots = parse_robots(text.encode())
        self._lines = split_lines(text)
        self._groups: dict[str | None, _Group] = {}

    def group_for(self, agent: Agent) -> str | None:
        """Whose groups hold for an agent, such as `*`; None if there are none for it."""
        return self._robots.group_for(agent.name, *agent.follows)

    def decide(self, agent: Agent, path: str) -> tuple[Rule | None, int]:
        """The rule that decides whether an agent may fetch a path, and how many rules decide
        otherwise for addresses below it.
        """
        group = self.group_of(agent)
        rule = group.rules.rule_for(path)
        return rule, group.count_below(path, allow=rule is not None and not rule.allow)

    def rules_for(
        self, agents: Iterable[Agent], paths: Sequence[str]
    ) -> dict[str, list[Rule | None]]:
        """By name of agent, the rule that decides on each path.

        Agents for whom the same rules hold share one list, with the lines of the first of them:
        many files repeat their rules for one agent after another.
        """
        found: dict[_Content, list[Rule | None]] = {}
        by_name = {}
        for agent in agents:
            group = self.group_of(agent)
            if group.content not in found:
                found[group.content] = list(map(group.rules.rule_for, paths))
            by_name[agent.name] = found[group.content]
        return by_name

    def usages(self) -> list[Usage]:
        """The Content-Signal and Content-Usage lines, in their order."""
        said: dict[tuple[str, str, str], tuple[str, int]] = {}
        return [self._usage(line, said) for line in self._robots.usage]

    @property
    def is_truncated(self) -> bool:
        """Whether rules were ignored for an agent that was asked for."""
        return any(group.rules.is_truncated for group in self._groups.values())

    def line(self, number: int) -> str:
        """A line of the text, as far as it can be shown."""
        return truncated(self._lines[number - 1].strip(), MAX_LINE_CHARS)

    def group_of(self, agent: Agent) -> _Group:
        """The rules that hold for an agent."""
        name = self.group_for(agent)
        if name not in self._groups:
            self._groups[name] = _Group(self._robots.rules_for(name or "*"))
        return self._groups[name]

    def _usage(self, line: UsageLine, said: dict[tuple[str, str, str], tuple[str, int]]) -> Usage:
        agents = list(islice(dict.fromkeys(line.agents), MAX_NAMES))
        path, value = _split_path(line)
        values, invalid = _read_values(line.key, value)
        if not agents:
            invalid.append("It stands before the first User-agent line, so it applies to no agent.")
        contradicts = dict.fromkeys(self._contradictions(line, agents, path or "", values, said))
        first = {name: given[0] for name, given in values.items()}
        text = self.line(line.line)
        return Usage(line.line, text, agents, path, first, invalid, list(contradicts))

    def _contradictions(
        self,
        line: UsageLine,
        agents: Sequence[str],
        path: str,
        values: dict[str, list[str]],
        said: dict[tuple[str, str, str], tuple[str, int]],
    ) -> Iterator[str]:
        for name, given in values.items():
            use = _SAME_USE.get(name, name)
            for answer in dict.fromkeys(given):
                meant = _SAME_ANSWER.get(answer, answer)
                for agent in agents:
                    before, where = said.setdefault((agent, path, use), (meant, line.line))
                    if before != meant:
                        yield f"{name}={answer} contradicts {use}={before} in line {where}."
                barred = (self._bars(agent, path or "/") for agent in agents if meant == "yes")
                if rule := next(filter(None, barred), None):
                    yield f"{name}={answer}, but line {rule.line} lets the agent fetch nothing."

    def _bars(self, agent: str, path: str) -> Rule | None:
        """The rule that closes a path to an agent with everything below it."""
        rules = self._robots.rules_for(agent)
        rule = rules.rule_for(path)
        if rule is None or rule.allow or any(one.allow for one in rules.rules):
            return None
        return rule


class _Group:
    """The rules for some agents. `content`: what they say, without where they stand."""

    def __init__(self, rules: AgentRules) -> None:
        self.rules = rules
        self.content = frozenset((rule.pattern, rule.allow) for rule in rules.rules)
        self._texts: dict[bool, list[str]] = {}

    @property
    def forbids(self) -> bool:
        """Whether there is anything that these agents may not fetch."""
        return not all(allow for _, allow in self.content)

    def count_below(self, path: str, *, allow: bool) -> int:
        """How many rules with this answer are for addresses below a path."""
        if allow not in self._texts:
            wanted = (pattern for pattern, answer in self.content if answer is allow)
            self._texts[allow] = sorted(map(comparable, wanted))
        head, texts = comparable_path(path), self._texts[allow]
        # Comparable text is ASCII, so this sorts after all that begins with the path.
        return bisect_left(texts, head + "\x7f") - bisect_right(texts, head)


_match_path = re.compile(r"(/\S*)\s+(.*)", re.DOTALL).fullmatch
_match_item = re.compile(r"([a-z*][a-z0-9_.*-]*)\s*=\s*(\S+)").fullmatch
_SIGNALS = {
    **dict.fromkeys(("search", "ai-input", "ai-train"), ("yes", "no")),
    # How much of the content may be shown; written by a widespread firewall.
    "use": ("immediate", "reference", "full"),
}
_SAME_USE = {"train-ai": "ai-train"}
_SAME_ANSWER = {"y": "yes", "n": "no"}


def _split_path(line: UsageLine) -> tuple[str | None, str]:
    """Content-Usage may begin with the path that it is for."""
    match = _match_path(line.value) if line.key == "content-usage" else None
    return (match[1], match[2]) if match else (None, line.value)


def _read_values(key: str, value: str) -> tuple[dict[str, list[str]], list[str]]:
    """The values by name, and sentences about what cannot be read."""
    values: dict[str, list[str]] = defaultdict(list)
    invalid = []
    parts = value.lower().split(",", MAX_VALUES)
    for part in parts[:MAX_VALUES]:
        item = part.partition(";")[0].strip() if key == "content-usage" else part.strip()
        match = _match_item(item)
        # The draft of Content-Usage leaves names open.
        known = ("y", "n") if key == "content-usage" else _SIGNALS.get(match[1]) if match else None
        if match is None:
            invalid.append(
                f"{_quoted(item)} is not of the form name=value." if item else "A value is empty."
            )
        elif known is None:
            invalid.append(f"{_quoted(match[1])} is not a known signal.")
        elif match[2] not in known:
            invalid.append(f"{_quoted(item)}: the value must be {' or '.join(known)}.")
        else:
            values[match[1]].append(match[2])
    if len(parts) > MAX_VALUES:
        invalid.append(f"Only the first {MAX_VALUES} values are read.")
    return values, list(dict.fromkeys(invalid))


def _quoted(text: str) -> str:
    return f"“{truncated(text, 60)}”"


_match_address = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*)?([^#]*)", re.DOTALL).match


def path_of(address: str) -> str:
    """The part of an address, or of a path, that rules are compared with: path and query."""
    match = _match_address(address)
    path = match[1] if match else ""
    return path if path.startswith("/") else f"/{path}"


@dataclass(frozen=True, slots=True)
class AccessChange:
    """Agents that may fetch what they could not before, or the reverse.

    `paths` are sections, or patterns of rules that differ; what another of them covers is left out.
    """

    code: str
    agents: tuple[Agent, ...]
    paths: tuple[str, ...]


def compare_access(
    before: str, after: str, sections: Collection[str] = (), agents: Iterable[Agent] = ()
) -> list[AccessChange]:
    """For which agents a robots.txt opened or closed what; all that are known without `agents`."""
    if before == after:
        return []
    old, new = Policy(before), Policy(after)
    found: dict[tuple[str, tuple[str, ...]], list[Agent]] = defaultdict(list)
    compared: dict[tuple[_Content, _Content], dict[str, tuple[str, ...]]] = {}
    for agent in tuple(agents) or known_agents().agents:
        groups = old.group_of(agent), new.group_of(agent)
        key = groups[0].content, groups[1].content
        if key not in compared:
            compared[key] = _changed_paths(*groups, sections)
        for code, paths in compared[key].items():
            found[code, paths].append(agent)
    return [AccessChange(code, tuple(whose), paths) for (code, paths), whose in found.items()]


def _changed_paths(
    old: _Group, new: _Group, sections: Collection[str]
) -> dict[str, tuple[str, ...]]:
    differing = sorted({pattern for pattern, _ in old.content ^ new.content}, key=len)
    examples = {name: name for name in ("/", *sections)}
    for pattern in differing[:MAX_COMPARED_RULES]:
        examples.setdefault(pattern, _example_of(pattern))
    changed: dict[str, list[str]] = {CLOSED: [], OPENED: []}
    for name in sorted(examples, key=lambda name: (len(name), name)):
        was, now = (group.rules.allows(examples[name]) for group in (old, new))
        kept = changed[OPENED if now else CLOSED]
        if was != now and not name.startswith(tuple(kept)):
            kept.append(name)
    return {code: tuple(paths) for code, paths in changed.items() if paths}


def _example_of(pattern: str) -> str:
    """A path that a pattern matches."""
    path = pattern.removesuffix("$").replace("*", "x")
    return path if path.startswith("/") else f"/{path}"
