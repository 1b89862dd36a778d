"""Which findings count: options, configuration, ignores for paths, and the baseline.

The configuration is the table `lint` of siteatlas.toml, or `tool.siteatlas.lint` of pyproject.toml,
in the current directory. An option takes precedence over it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import orjson

from siteatlas.errors import ConfigurationError, InputError
from siteatlas.findings.judging import Finding
from siteatlas.findings.rules import Severity, all_rules, rule_named

CONFIGURATION_FILES = (
    ("siteatlas.toml", ("lint",)),
    ("pyproject.toml", ("tool", "siteatlas", "lint")),
)


class MinSeverity(StrEnum):
    """From which severity on findings are shown."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


class FailOn(StrEnum):
    """From which severity on a finding ends the command with exit code 1."""

    ERROR = "error"
    WARNING = "warning"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Choice:
    """What counts. `select` is empty if every rule does; `per_path` has patterns of documents."""

    select: frozenset[str] = frozenset()
    ignore: frozenset[str] = frozenset()
    per_path: Mapping[str, frozenset[str]] = field(default_factory=dict)
    min_severity: MinSeverity = MinSeverity.NOTE
    fail_on: FailOn = FailOn.ERROR
    baseline: Path | None = None

    def keeps(self, finding: Finding) -> bool:
        """Whether a finding is shown."""
        if self.select and finding.code not in self.select:
            return False
        ignored = self.ignore.union(
            *(codes for path, codes in self.per_path.items() if fnmatchcase(finding.document, path))
        )
        severity = finding.rule.severity
        return finding.code not in ignored and severity >= Severity.of(self.min_severity)

    def is_failure(self, finding: Finding) -> bool:
        if self.fail_on is FailOn.NEVER:
            return False
        return finding.rule.severity >= Severity.of(self.fail_on)

    def with_options(self, select: str | None, ignore: str | None, **others: object) -> Choice:
        """The same with the options that were given; `--ignore` adds to the configuration."""
        given: dict[str, Any] = {name: value for name, value in others.items() if value is not None}
        if select is not None:
            given["select"] = _codes(select.split(","), "--select")
        if ignore is not None:
            given["ignore"] = self.ignore | _codes(ignore.split(","), "--ignore")
        return replace(self, **given)


def _codes(texts: Iterable[str], place: str) -> frozenset[str]:
    found: set[str] = set()
    for text in texts:
        rule = rule_named(text.strip())
        if rule is None:
            raise ConfigurationError(f"{place}: there is no rule {text.strip()!r}.")
        found.add(rule.code)
    return frozenset(found)


def read_configuration(folder: Path = Path()) -> Choice:
    """The configuration of a folder; ConfigurationError for a word that nobody knows."""
    for name, keys in CONFIGURATION_FILES:
        file = folder / name
        if not file.is_file():
            continue
        try:
            table: Any = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigurationError(f"{name} cannot be read as TOML: {error}") from error
        for key in keys:
            table = table.get(key, {})
        if table:
            return _configured(table, name)
    return Choice()


def _configured(table: Mapping[str, Any], name: str) -> Choice:
    per_path = table.get("per-path-ignores", {})
    try:
        choice = Choice(
            select=_codes(table.get("select", ()), name),
            ignore=_codes(table.get("ignore", ()), name),
            per_path={path: _codes(codes, name) for path, codes in per_path.items()},
            min_severity=MinSeverity(table.get("min-severity", MinSeverity.NOTE)),
            fail_on=FailOn(table.get("fail-on", FailOn.ERROR)),
            baseline=Path(table["baseline"]) if "baseline" in table else None,
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(f"{name}: lint: {error}.") from error
    known = {"select", "ignore", "per-path-ignores", "min-severity", "fail-on", "baseline"}
    if unknown := sorted(set(table) - known):
        raise ConfigurationError(f"{name}: lint has unknown settings: {', '.join(unknown)}.")
    return choice


def baseline_of(findings: Iterable[Finding]) -> bytes:
    """What is accepted from now on, in an order that does not change."""
    rows = [
        {
            "rule": one.code,
            "document": one.document,
            "fingerprint": one.fingerprint,
            "count": one.count,
        }
        for one in findings
    ]
    rows.sort(key=lambda row: (row["document"], row["rule"]))
    return orjson.dumps(rows, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def without_baseline(findings: Sequence[Finding], file: Path) -> tuple[list[Finding], list[str]]:
    """The findings that the baseline does not accept, and what of it is gone.

    Rule and document identify a finding, its count must not grow: which sample is the first one
    changes when that is repaired.
    """
    try:
        rows = orjson.loads(file.read_bytes())
        known = {(row["rule"], row["document"]): int(row["count"]) for row in rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"The baseline {file} cannot be read: {error}.") from error
    if unknown := sorted({rule for rule, _ in known} - set(all_rules())):
        raise InputError(f"The baseline {file} has unknown rules: {', '.join(unknown)}.")
    kept = [one for one in findings if one.count > known.get((one.code, one.document), 0)]
    present = {(one.code, one.document) for one in findings}
    gone = [f"{rule} in {document}" for rule, document in known if (rule, document) not in present]
    return kept, gone
