"""`siteatlas demo`: runs the whole service against small sites on this machine."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from siteatlas.aio.background import background_task
from siteatlas.cli.commands.demo_tour import DemoScan, Tour, invitation, new_client, program_name
from siteatlas.cli.hosting.listener import base_url, listen
from siteatlas.cli.hosting.server import Service
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.errors import INTERRUPTED, run
from siteatlas.cli.terminal.output import Column, ColumnKind, print_message, write_table
from siteatlas.demo.changing import ChangingSite, keep_changing
from siteatlas.demo.server import DemoServer
from siteatlas.demo.sites import PLANS
from siteatlas.setting_types import MAX_PORT
from siteatlas.settings import Settings, default_data_dir

COLUMNS = [
    Column("SITE"),
    Column("ADDRESS", kind=ColumnKind.URL),
    Column("STATUS", kind=ColumnKind.STATUS),
    Column("SITEMAPS", right=True, kind=ColumnKind.COUNT),
    Column("URLS", right=True, kind=ColumnKind.COUNT),
    Column("REASON"),
]
NAME_WIDTH = 10
SCAN_SECONDS = 10.0

app = typer.Typer(rich_markup_mode=None)


@app.command()
def demo(
    leave: Annotated[
        bool,
        typer.Option(
            "--exit", help="Exit after showing the results instead of running until interrupted."
        ),
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=MAX_PORT, help="Port to listen on; 0 picks a free port.")
    ] = 0,
    changing: Annotated[
        bool,
        typer.Option(
            "--changing",
            help="Also serve a site that changes every few seconds, and scan it again and again.",
        ),
    ] = False,
) -> None:
    """Run the whole service on this machine, scan small demo sites and show the results.

    The demo uses its own data directory. With --exit, the exit code is 1 if a result is unexpected,
    and --changing has no effect.
    """
    settings = prepare(log_level="error", host="127.0.0.1", port=port)
    journal = ChangingSite() if changing and not leave else None
    with listen(settings.host, settings.port) as listener:
        scans = run(_demo(settings, listener, journal, leave=leave))
    if scans is None:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(0 if all(scan.is_as_expected for scan in scans) else 1)


def demo_settings(settings: Settings, allowed: list[str]) -> Settings:
    """The settings of the demo: its own embedded database, and the demo sites may be scanned."""
    return replace(
        settings,
        database_url=None,
        data_dir=demo_data_dir(settings.data_dir),
        egress_allow=",".join(allowed),
    )


def demo_data_dir(data_dir: Path) -> Path:
    """Beside the usual data directory, or inside one that was chosen."""
    if data_dir == default_data_dir():
        return data_dir.with_name(f"{data_dir.name}-demo")
    return data_dir / "demo"


async def _demo(
    settings: Settings, listener: socket.socket, journal: ChangingSite | None, *, leave: bool
) -> list[DemoScan] | None:
    """The scans of the demo sites; None if a signal ended the demo early."""
    async with DemoServer(PLANS if journal is None else (*PLANS, journal.plan)) as server:
        own = demo_settings(settings, [site.host_port for site in server.sites])
        ready = asyncio.Event()
        service = Service(own)
        serving = asyncio.create_task(service.run(listener, ready.set))
        touring = asyncio.create_task(_tour(ready, base_url(listener), server))
        await asyncio.wait([serving, touring], return_when=asyncio.FIRST_COMPLETED)
        toured = touring.done()
        if not toured:
            touring.cancel()
        elif leave or touring.exception() is not None:
            service.stop()
        else:
            address = base_url(listener)
            lines = invitation(
                address, server.sites, own.data_dir, program_name(), changing=journal is not None
            )
            for line in lines:
                print_message(line)
            if journal is not None:
                return await _serve_changes(journal, address, server, serving, touring.result())
        await serving
        return touring.result() if toured else None


async def _serve_changes(
    journal: ChangingSite,
    address: str,
    server: DemoServer,
    serving: asyncio.Task[None],
    scans: list[DemoScan],
) -> list[DemoScan]:
    """Change the site of `siteatlas demo --changing` and scan it until the service is stopped."""
    async with (
        new_client(address) as client,
        background_task(keep_changing(journal)),
        background_task(Tour(client).scan_repeatedly(server.sites[-1], SCAN_SECONDS)),
    ):
        await serving
    return scans


async def _tour(ready: asyncio.Event, address: str, server: DemoServer) -> list[DemoScan]:
    """Once the service is ready, scan the demo sites through its API and print the results."""
    await ready.wait()
    async with new_client(address) as client:
        tour = Tour(client)
        known = await tour.known_sites()
        if known:
            print_message(f"{known} sites known from before.")
        print_message(f"Scanning {len(server.sites)} demo sites through {address}")
        scans = await tour.scan(server.sites)
    write_table(COLUMNS, map(_result_row, scans))
    print_message("")
    for site in server.sites:
        print_message(f"{site.name:<{NAME_WIDTH}}{site.story}")
    for scan in scans:
        if not scan.is_as_expected:
            print_message(f"{scan.site.name} did not end as expected: {scan.site.expected_status}.")
    return scans


def _result_row(scan: DemoScan) -> list[object]:
    """One row of the results that `siteatlas demo` prints."""
    return [
        scan.site.name,
        scan.site.base_url,
        scan.shown_status,
        scan.sitemaps,
        scan.urls,
        scan.outcome_reason,
    ]
