"""`siteatlas rules`: what sitemaps and sites are judged by, as a list or one rule in words."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from siteatlas.cli.terminal.options import JsonOption
from siteatlas.cli.terminal.output import (
    WIDE,
    Column,
    ColumnKind,
    write_details,
    write_json,
    write_table,
)
from siteatlas.errors import InputError
from siteatlas.findings.rules import Rule, all_rules, rule_named

COLUMNS = [
    Column("CODE", kind=ColumnKind.NAME, value="code"),
    Column("SEVERITY", value=lambda rule: rule.severity.word),
    Column("MEANING", kind=ColumnKind.PROSE, value="title"),
    Column("NEEDS", from_width=WIDE, value=lambda rule: ", ".join(rule.needs)),
]

app = typer.Typer(rich_markup_mode=None)


@app.command()
def rules(
    code: Annotated[
        str | None,
        typer.Argument(metavar="CODE", help="A rule such as lastmod-future, or a problem code."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the rules, or explain one: why it matters and how to fix it.

    Example: siteatlas rules lastmod-future
    """
    shown = list(all_rules().values()) if code is None else [known_rule(code)]
    if as_json:
        items = [asdict(rule) | {"severity": rule.severity.word} for rule in shown]
        write_json({"items": items, "next_cursor": None})
    elif code is not None:
        explain(shown[0])
    else:
        write_table(COLUMNS, (tuple(column.of(rule) for column in COLUMNS) for rule in shown))


def known_rule(code: str) -> Rule:
    """The rule that a person means; InputError if there is none."""
    if (rule := rule_named(code)) is None:
        raise InputError(f"There is no rule {code}. List them: siteatlas rules")
    return rule


def explain(rule: Rule) -> None:
    """Print a rule in words."""
    names = {"title": "meaning", "stated_by": "stated by"}
    texts = {
        names.get(name, name): ", ".join(value) if isinstance(value, tuple) else value
        for name, value in asdict(rule).items()
    }
    write_details((texts | {"severity": rule.severity.word}).items())
