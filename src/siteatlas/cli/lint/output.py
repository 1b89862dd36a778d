"""How findings are written: as text, JSON, SARIF for code scanning, and annotations for GitHub.

A result stands for all places of a rule in a document; consumers refuse results without a location,
so that what concerns a document as a whole is at its first character.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from siteatlas import __version__
from siteatlas.cli.lint.reading import Linted
from siteatlas.cli.terminal.output import counted, json_bytes
from siteatlas.errors import InputError
from siteatlas.findings.judging import Finding, Sample
from siteatlas.findings.rules import Rule, Severity, all_rules
from siteatlas.text import clean_text, printable, truncated

SARIF_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
# Limits of code scanning, and of annotations for each severity and step.
MAX_RESULTS = 25_000
MAX_ANNOTATIONS = 9
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
SHOWN_CHARS = 120


class LintFormat(StrEnum):
    """The forms of findings."""

    TEXT = "text"
    FULL = "full"
    JSON = "json"
    JSONL = "jsonl"
    SARIF = "sarif"
    GITHUB = "github"


@dataclass(frozen=True, slots=True)
class LintReport:
    """What is written: the findings that count. `sarif_root` is the folder of a site's files."""

    linted: Linted
    findings: Sequence[Finding]
    sarif_root: str = ""
    targets: Sequence[str] = field(default_factory=tuple)


def parsed_formats(texts: Iterable[str]) -> list[tuple[LintFormat, Path | None]]:
    """The formats from `FORMAT` or `FORMAT=FILE`; at most one of them is for stdout."""
    formats: list[tuple[LintFormat, Path | None]] = []
    for text in texts:
        name, _, file = text.partition("=")
        if name not in list(LintFormat):
            raise InputError(f"--format: {name} is not one of {', '.join(LintFormat)}.")
        formats.append((LintFormat(name), Path(file) if file else None))
    if sum(file is None for _, file in formats) > 1:
        raise InputError("--format: only one format can be written to stdout; use FORMAT=FILE.")
    return formats


def encoded(form: LintFormat, report: LintReport) -> bytes:
    """The report in one format."""
    return _WRITERS[form](report)


def message_of(finding: Finding) -> str:
    """The rule in words, with the first sample and how many more places there are."""
    first = finding.samples[0].text if finding.samples else None
    parts = [f'"{truncated(first, SHOWN_CHARS)}"'] if first else []
    parts += [finding.detail] if finding.detail else []
    more = f" (+{finding.count - 1:,} more)" if finding.count > 1 else ""
    return f"{finding.rule.title}{': ' if parts else ''}{', '.join(parts)}{more}"


def place_of(finding: Finding) -> tuple[int, int]:
    """Line and column of the first sample that has them; the beginning without any."""
    for sample in finding.samples:
        if sample.line is not None and sample.column is not None:
            return sample.line, sample.column
    return 1, 1


def line_of(finding: Finding) -> str:
    """One finding as `file:line:column: severity code: message`."""
    line, column = place_of(finding)
    rule = finding.rule
    text = f"{finding.document}:{line}:{column}: {rule.severity.word} {rule.code}: "
    return printable(text + clean_text(message_of(finding)))


def _text(report: LintReport) -> bytes:
    return "".join(f"{line_of(one)}\n" for one in report.findings).encode("utf-8", "replace")


def _full(report: LintReport) -> bytes:
    lines: list[str] = []
    for finding in report.findings:
        rule = finding.rule
        lines += [line_of(finding), f"    Why: {rule.why}", f"    Fix: {rule.fix}"]
        for sample in finding.samples:
            place = f"{sample.line}:{sample.column}" if sample.line else "-"
            texts = dict.fromkeys(filter(None, (sample.url, sample.value)))
            lines.append(f"    {place}  {printable(clean_text('  '.join(texts)))}")
        lines.append("")
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def fields_of(finding: Finding) -> dict[str, object]:
    """A finding as JSON has it."""
    line, column = place_of(finding)
    return {
        "rule": finding.code,
        "severity": finding.rule.severity.word,
        "document": finding.document,
        "line": line,
        "column": column,
        "message": message_of(finding),
        "detail": finding.detail or None,
        "count": finding.count,
        "samples": [
            {"url": one.url, "value": one.value, "line": one.line, "column": one.column}
            for one in finding.samples
        ],
        "fingerprint": finding.fingerprint,
    }


def _json(report: LintReport) -> bytes:
    unread = [{"document": name, "reason": reason} for name, reason in report.linted.unread]
    found = [fields_of(one) for one in report.findings]
    documents = report.linted.documents
    return json_bytes({"documents": documents, "findings": found, "unread": unread}, indented=True)


def _json_lines(report: LintReport) -> bytes:
    return b"".join(json_bytes(fields_of(one)) for one in report.findings)


def _github(report: LintReport) -> bytes:
    """Workflow commands, the worst first; of each severity only the first are shown."""
    lines: list[str] = []
    for severity, level in LEVELS.items():
        found = [one for one in report.findings if one.rule.severity is severity]
        for one in found[:MAX_ANNOTATIONS]:
            line, column = place_of(one)
            path = _escaped(_relative_path(one.document), ":,")
            lines.append(
                f"::{level} file={path},line={line},col={column},title={one.code}"
                f"::{_escaped(message_of(one))}"
            )
        if more := len(found) - MAX_ANNOTATIONS if len(found) > MAX_ANNOTATIONS else 0:
            lines.append(f"::{level}::and {more:,} more of this severity")
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _escaped(text: str, more: str = "") -> str:
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def summary_table(report: LintReport) -> bytes:
    """The findings as a table in Markdown, for the summary of a workflow."""
    rows = ["### Siteatlas lint", "", summary_of(report), ""]
    if report.findings:
        rows += ["| severity | rule | document | places |", "|---|---|---|---:|"]
    for one in report.findings[:200]:
        document = printable(one.document).replace("|", "\\|")
        rows.append(f"| {one.rule.severity.word} | `{one.code}` | {document} | {one.count:,} |")
    return ("\n".join(rows) + "\n\n").encode("utf-8", "replace")


def summary_of(report: LintReport) -> str:
    """How many findings of each severity there are."""
    counts = Counter(one.rule.severity for one in report.findings)
    parts = [counted(counts[severity], severity.word) for severity in LEVELS if counts[severity]]
    return f"{', '.join(parts) or 'No findings'} in {counted(report.linted.documents, 'document')}."


def _sarif(report: LintReport) -> bytes:
    rules = {code: place for place, code in enumerate(all_rules())}
    worst_first = sorted(report.findings, key=lambda one: -one.rule.severity)[:MAX_RESULTS]
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "Siteatlas",
                "semanticVersion": __version__,
                "rules": [_sarif_rule(rule) for rule in all_rules().values()],
            }
        },
        "automationDetails": {"id": f"siteatlas/{_category(report.targets)}/"},
        "columnKind": "unicodeCodePoints",
        "results": [_sarif_result(one, rules[one.code], report.sarif_root) for one in worst_first],
    }
    return json_bytes({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]})


def _sarif_rule(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.code,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": f"{rule.title}. {rule.why}"},
        "help": {"text": f"{rule.why} {rule.fix}", "markdown": f"{rule.why}\n\n{rule.fix}"},
        "defaultConfiguration": {"level": rule.severity.word},
        "properties": {
            "precision": "high",
            "problem.severity": LEVELS[rule.severity].replace("notice", "recommendation"),
            "tags": ["sitemap", *rule.needs],
        },
    }


def _sarif_result(finding: Finding, index: int, root: str) -> dict[str, object]:
    line, column = place_of(finding)
    shown = next((one for one in finding.samples if one.line is not None), Sample())
    length = len((shown.text or "").split("\n")[0]) or 1
    region = {
        "startLine": line,
        "startColumn": column,
        "endLine": line,
        "endColumn": column + length,
    }
    artifact = {"uri": _sarif_uri(finding.document, root)}
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": finding.rule.severity.word,
        "message": {"text": clean_text(message_of(finding))},
        "locations": [{"physicalLocation": {"artifactLocation": artifact, "region": region}}],
        "partialFingerprints": {"primaryLocationLineHash": f"{finding.fingerprint}:1"},
    }


def _sarif_uri(document: str, root: str) -> str:
    if "://" in document:
        path = urlsplit(document).path.lstrip("/") or "sitemap.xml"
        return f"{root.strip('/')}/{path}" if root.strip("/") else path
    return quote(_relative_path(document))


def _relative_path(document: str) -> str:
    """A path below the current directory, which is that of the repository; others as they are."""
    if "://" in document or not os.path.isabs(document):  # noqa: PTH117
        return os.path.normpath(document) if "://" not in document else document
    path = Path(document)
    return path.relative_to(Path.cwd()).as_posix() if path.is_relative_to(Path.cwd()) else document


def _category(targets: Sequence[str]) -> str:
    only = targets[0] if len(targets) == 1 else "files"
    return quote((urlsplit(only).netloc if "://" in only else only).strip("./") or "files")


def ordered(findings: Iterable[Finding]) -> Iterator[Finding]:
    """By document as they came, by line in each."""
    documents: dict[str, list[Finding]] = {}
    for finding in findings:
        documents.setdefault(finding.document, []).append(finding)
    for found in documents.values():
        yield from sorted(found, key=place_of)


_WRITERS: dict[LintFormat, Callable[[LintReport], bytes]] = {
    LintFormat.TEXT: _text,
    LintFormat.FULL: _full,
    LintFormat.JSON: _json,
    LintFormat.JSONL: _json_lines,
    LintFormat.SARIF: _sarif,
    LintFormat.GITHUB: _github,
}
