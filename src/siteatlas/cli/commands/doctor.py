"""`siteatlas doctor`: checks a setup."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from siteatlas.cli.hosting.doctor import (
    Finding,
    State,
    check_access,
    check_disk,
    check_network,
    check_port,
    fail,
)
from siteatlas.cli.hosting.doctor_database import check_database
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.errors import advice_for, run
from siteatlas.cli.terminal.options import JsonOption
from siteatlas.cli.terminal.output import print_message, write_json, write_line
from siteatlas.errors import ConfigurationError, DatabaseError
from siteatlas.settings import Settings
from siteatlas.storage.startup import open_storage

app = typer.Typer(rich_markup_mode=None)


@app.command()
def doctor(
    site: Annotated[
        str,
        typer.Option(
            metavar="SITE",
            help="Site to resolve and to request, over HTTPS unless it is given as http://SITE.",
        ),
    ] = "example.com",
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not check name resolution and outgoing requests.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check the setup: database, schema, privileges, network, disk, clocks, ports.

    Each line shows ok, warn or fail, with advice if needed. Exit with 1 if a check fails.
    """
    findings = run(_examine(prepare(), None if offline else site))
    worst = max((finding.state for finding in findings), key=list(State).index)
    if as_json:
        write_json({"status": worst, "items": findings})
    else:
        _print_findings(findings)
    raise typer.Exit(1 if worst is State.FAIL else 0)


def _print_findings(findings: list[Finding]) -> None:
    """Print the findings of `siteatlas doctor`, one per line, and what to do below."""
    for finding in findings:
        write_line(f"{finding.state:<4}  {finding.check:<10}  {finding.message}")
        if finding.advice:
            write_line(f"{'':18}{finding.advice}")


async def _examine(settings: Settings, site: str | None) -> list[Finding]:
    """Run all checks for `siteatlas doctor`; one that fails does not prevent the others."""
    findings, is_closed = await _examine_database(settings)
    findings.append(check_disk(settings))
    findings.append(check_access(settings, is_closed=is_closed))
    findings.append(await asyncio.to_thread(check_port, settings))
    if site is not None:
        findings += await check_network(settings, site)
    return findings


async def _examine_database(settings: Settings) -> tuple[list[Finding], bool | None]:
    """The findings about the database; one if it cannot be used."""
    try:
        async with open_storage(settings, announce=print_message, check_schema=False) as database:
            return await check_database(settings, database)
    except (DatabaseError, ConfigurationError) as error:
        return [fail("database", error.message, advice_for(error))], None
