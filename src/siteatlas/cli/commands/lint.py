"""`siteatlas lint`: judge sitemaps in files, folders or on sites, for people and for builds."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from siteatlas.cli.commands.rules import explain, known_rule
from siteatlas.cli.lint.choice import (
    Choice,
    FailOn,
    MinSeverity,
    baseline_of,
    read_configuration,
    without_baseline,
)
from siteatlas.cli.lint.output import (
    LintFormat,
    LintReport,
    encoded,
    ordered,
    parsed_formats,
    summary_of,
    summary_table,
)
from siteatlas.cli.lint.reading import Linted, Network, lint_all
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.errors import quiet_interrupts, run
from siteatlas.cli.terminal.output import counted, print_message, print_warning, write_bytes
from siteatlas.errors import InputError, ScanError

FOUND, NOT_READ = 1, ScanError.exit_code

app = typer.Typer(rich_markup_mode=None)


@app.command()
def lint(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET",
            help="A file, a folder, a sitemap URL, a site, or - to read a sitemap from stdin. "
            "Repeatable.",
        ),
    ] = None,
    *,
    format: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            metavar="FORMAT[=FILE]",
            help="text, full, json, jsonl, sarif or github; with FILE, write there instead of "
            "stdout. Repeatable.  [default: text]",
        ),
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(metavar="CODES", help="Judge only by these rules, separated by commas."),
    ] = None,
    ignore: Annotated[
        str | None, typer.Option(metavar="CODES", help="Ignore these rules, separated by commas.")
    ] = None,
    min_severity: Annotated[
        MinSeverity | None,
        typer.Option(help="Leave out findings below this severity.  [default: note]"),
    ] = None,
    fail_on: Annotated[
        FailOn | None,
        typer.Option(help="Exit with 1 from this severity on.  [default: error]"),
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Leave out the findings that FILE accepts.")
    ] = None,
    write_baseline_to: Annotated[
        Path | None,
        typer.Option(
            "--write-baseline", metavar="FILE", help="Write FILE, which accepts all findings."
        ),
    ] = None,
    sarif_root: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="Folder of the repository with the files of a site, for SARIF."
        ),
    ] = "",
    github_summary: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="GITHUB_STEP_SUMMARY",
            show_envvar=False,
            help="Append a table in Markdown to FILE.  [env: GITHUB_STEP_SUMMARY]",
        ),
    ] = None,
    explained: Annotated[
        str | None,
        typer.Option("--explain", metavar="CODE", help="Explain a rule and read nothing."),
    ] = None,
    only: Annotated[
        bool,
        typer.Option("--only", help="Of a sitemap URL, read only that sitemap and its children."),
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST[:PORT]", help="Allow this host, even if it is private."),
    ] = None,
) -> None:
    """Judge sitemaps and robots.txt by the rules; exit with 1 after an error.

    Example: siteatlas lint public/ --format github --format sarif=lint.sarif
    """
    if explained is not None:
        explain(known_rule(explained))
        return
    if not targets:
        raise InputError("Name a file, a folder or a site.")
    formats = parsed_formats(format or [LintFormat.TEXT.value])
    choice = read_configuration().with_options(
        select, ignore, min_severity=min_severity, fail_on=fail_on, baseline=baseline
    )
    network = Network(partial(prepare, log_level="error"), allow or [], only)
    with quiet_interrupts():
        linted = run(lint_all(targets, datetime.now(UTC), network))
        findings = [one for one in ordered(linted.findings) if choice.keeps(one)]
        if write_baseline_to is not None:
            _write(write_baseline_to, baseline_of(findings))
            print_message(f"Accepted {counted(len(findings), 'finding')} in {write_baseline_to}.")
        elif choice.baseline is not None:
            findings, gone = without_baseline(findings, choice.baseline)
            for text in gone:
                print_message(f"In the baseline, but no longer found: {text}")
        report = LintReport(linted, findings, sarif_root, targets)
        for form, file in formats:
            _write(file, encoded(form, report))
        if github_summary is not None:
            _write(github_summary, summary_table(report), mode="ab")
        _say_end(report)
        raise typer.Exit(_exit_code(linted, report, choice, accepted=write_baseline_to is not None))


def _write(file: Path | None, data: bytes, mode: Literal["wb", "ab"] = "wb") -> None:
    if file is None:
        write_bytes(data)
        return
    try:
        with file.open(mode) as opened:
            opened.write(data)
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}.") from error


def _say_end(report: LintReport) -> None:
    for document, reason in report.linted.unread:
        print_warning(f"Not read: {document}: {reason}")
    if report.linted.is_sampled:
        print_message(
            "There are more URLs than can be compared; some rules judged only part of them."
        )
    print_message(summary_of(report))


def _exit_code(linted: Linted, report: LintReport, choice: Choice, *, accepted: bool) -> int:
    if linted.unread:
        return NOT_READ
    return FOUND if not accepted and any(map(choice.is_failure, report.findings)) else 0
