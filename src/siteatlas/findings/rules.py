"""The rules as data, read from `rules.toml`, and which rule a problem of the scanner belongs to.

Codes of problems and errors (`snake_case`) stay what they are in reports and in the service; rules
(`kebab-case`) are what findings are about.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from importlib.resources import files
from typing import Any


class Severity(IntEnum):
    """By consequence. Error: a consumer loses something."""

    NOTE = 1
    WARNING = 2
    ERROR = 3

    @property
    def word(self) -> str:
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> Severity:
        """The severity of this name; KeyError for another word."""
        return cls[word.upper()]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `needs`: document, site, history, robots, clock or pages.

    `covers` are the codes of problems and errors that it stands for. `lint` is False for a rule
    by which `siteatlas lint` does not judge.
    """

    code: str
    severity: Severity
    title: str
    why: str
    fix: str
    stated_by: tuple[str, ...]
    needs: tuple[str, ...]
    covers: tuple[str, ...] = ()
    lint: bool = True


@cache
def all_rules() -> Mapping[str, Rule]:
    """All rules by their codes, in the order of the reference."""
    text = files("siteatlas.findings").joinpath("rules.toml").read_text(encoding="utf-8")
    return {code: _rule(code, values) for code, values in tomllib.loads(text).items()}


def _rule(code: str, values: dict[str, Any]) -> Rule:
    severity = Severity.of(values.pop("severity"))
    fields: dict[str, Any] = {
        key: tuple(one) if isinstance(one, list) else one for key, one in values.items()
    }
    return Rule(code, severity, **fields)


@cache
def _covered() -> Mapping[str, str]:
    return {code: rule.code for rule in all_rules().values() for code in rule.covers}


def rule_of(code: str | None) -> str | None:
    """The rule that stands for a problem or an error; None if the site is not to blame for it."""
    return _covered().get(code) if code is not None else None


def rule_named(code: str) -> Rule | None:
    """The rule that a person means, by its code or by that of a problem or an error."""
    return all_rules().get(rule_of(code) or code)
