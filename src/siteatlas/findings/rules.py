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

# Counts up when rules are added. The service judges by them in silence once, see
# `siteatlas.catalog.findings`.
RULES_VERSION = 1
# What the service judges from what is stored of a site when a scan has changed it.
_OF_SITES = """
    sitemap-missing sitemap-redirected sitemap-orphan sitemap-not-in-robots sitemap-vanished
    sitemap-blocked-by-robots sitemap-validators-unstable robots-names-dead-sitemap
    robots-unreachable robots-too-large robots-sitemap-misspelt robots-sitemap-not-absolute
    content-signal-invalid content-signal-contradicts ai-search-blocked ai-user-blocked
    archive-blocked robots-opened robots-closed index-in-index index-child-dead
    index-lastmod-lags index-lastmod-always-now lastmod-backwards changefreq-contradicts-history
    window-overrun mass-removal-held count-collapsed url-flapping
"""
# What it judges from all URLs of a site, after the scan.
_OF_URLS = """
    url-disallowed url-disallowed-ai-search url-disallowed-ai-training url-in-several-sitemaps
    url-twins hreflang-no-return hreflang-target-unlisted
"""
SITE_RULES, URL_RULES = frozenset(_OF_SITES.split()), frozenset(_OF_URLS.split())


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
    by which `siteatlas lint` does not judge. `since`: the version of the rules that brought it.
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
    since: int = 1


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
def rules_by_problem() -> Mapping[str, str]:
    """The rule that stands for each code of a problem or an error."""
    return {code: rule.code for rule in all_rules().values() for code in rule.covers}


def rule_of(code: str | None) -> str | None:
    """The rule that stands for a problem or an error; None if the site is not to blame for it."""
    return rules_by_problem().get(code) if code is not None else None


def rule_named(code: str) -> Rule | None:
    """The rule that a person means, by its code or by that of a problem or an error."""
    return all_rules().get(rule_of(code) or code)


FETCH_RULES = frozenset(
    code for code, rule in all_rules().items() if rule.covers and rule.needs == ("site",)
)
