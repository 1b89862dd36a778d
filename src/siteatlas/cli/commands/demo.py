"""`siteatlas demo`: runs the whole service against small sites on this machine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from siteatlas.cli.commands.demo_living import HISTORY_SCANS, LivingSites
from siteatlas.cli.commands.demo_lock import only_demo
from siteatlas.cli.commands.demo_tour import DemoScan, Tour, invitation, new_client, program_name
from siteatlas.cli.hosting.listener import base_url, listen
from siteatlas.cli.hosting.server import Service
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.errors import INTERRUPTED, run
from siteatlas.cli.terminal.output import Column, ColumnKind, print_message, write_table
from siteatlas.demo.server import DemoServer, DemoSite
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
            help="Also serve sites that change while the demo runs and a slow one, and scan them "
            "again and again, so that the dashboard has something to show.",
        ),
    ] = True,
) -> None:
    """Run the whole service on this machine, scan small demo sites and show the results.

    The demo uses its own data directory, and only one demo at a time can use it. With --exit, the
    exit code is 1 if a result is unexpected, and there are no changing sites.
    """
    settings = prepare(log_level="error", host="127.0.0.1", port=port)
    living = LivingSites() if changing and not leave else None
    with (
        only_demo(demo_data_dir(settings.data_dir)) as store_address,
        listen(settings.host, settings.port) as listener,
    ):
        store_address(base_url(listener))
        scans = run(_demo(settings, listener, living, leave=leave))
    if scans is None:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(0 if all(scan.is_as_expected for scan in scans) else 1)


def demo_settings(settings: Settings, allowed: list[str]) -> Settings:
    """The settings of the demo: its own embedded database; its sites are allowed in addition."""
    entries = [*allowed, settings.egress_allow] if settings.egress_allow else allowed
    return replace(
        settings,
        database_url=None,
        data_dir=demo_data_dir(settings.data_dir),
        egress_allow=",".join(entries),
        given=settings.given | {"data_dir", "egress_allow"},
    )


def demo_data_dir(data_dir: Path) -> Path:
    """Beside the usual data directory, or inside one that was chosen."""
    if data_dir == default_data_dir():
        return data_dir.with_name(f"{data_dir.name}-demo")
    return data_dir / "demo"


async def _demo(
    settings: Settings, listener: socket.socket, living: LivingSites | None, *, leave: bool
) -> list[DemoScan] | None:
    """The scans of the demo sites; None if a signal ended the demo early."""
    async with DemoServer(PLANS if living is None else (*PLANS, *living.plans)) as server:
        own = demo_settings(settings, [site.host_port for site in server.sites])
        ready = asyncio.Event()
        service = Service(own)
        address = base_url(listener)
        serving = asyncio.create_task(service.run(listener, ready.set))
        touring = asyncio.create_task(_tour(ready, address, server.sites, living, leave=leave))
        await asyncio.wait([serving, touring], return_when=asyncio.FIRST_COMPLETED)
        toured = touring.done()
        if not toured:
            touring.cancel()
        elif leave or touring.exception() is not None:
            service.stop()
        else:
            _print_invitation(address, server.sites, own.data_dir, changing=living is not None)
            if living is not None:
                await _keep_living(living, address, server.sites, serving)
        await serving
        return touring.result() if toured else None


def _print_invitation(
    address: str, sites: Sequence[DemoSite], data_dir: Path, *, changing: bool
) -> None:
    """Print what to try while the demo runs."""
    for line in invitation(address, sites, data_dir, program_name(), changing=changing):
        print_message(line)


async def _keep_living(
    living: LivingSites, address: str, sites: Sequence[DemoSite], serving: asyncio.Task[None]
) -> None:
    """Change and scan the sites of the demo until the service is stopped."""
    async with (
        new_client(address) as client,
        living.kept_going(Tour(client, watch=True), sites[len(PLANS) :]),
    ):
        await asyncio.wait([serving])


async def _tour(
    ready: asyncio.Event,
    address: str,
    sites: Sequence[DemoSite],
    living: LivingSites | None,
    *,
    leave: bool,
) -> list[DemoScan]:
    """Once the service is ready, scan the demo sites through its API and print the results."""
    await ready.wait()
    if not leave:
        print_message(f"Dashboard: {address}/")
    async with new_client(address) as client:
        tour = Tour(client, watch=not leave)
        known = await tour.known_sites()
        if known:
            print_message(f"{known} sites known from before.")
        fixed = sites[: len(PLANS)]
        print_message(f"Scanning {len(fixed)} demo sites through {address}")
        scans = await tour.scan(fixed)
        if living is not None:
            print_message(f"Scanning the changing sites {HISTORY_SCANS} times")
            await living.make_history(tour, sites[len(PLANS) :])
    _print_results(sites, scans)
    return scans


def _print_results(sites: Sequence[DemoSite], scans: Sequence[DemoScan]) -> None:
    """Print the table of the scans, what each site is about, and what was unexpected."""
    write_table(COLUMNS, map(_result_row, scans))
    print_message("")
    for site in sites:
        print_message(f"{site.name:<{NAME_WIDTH}}{site.description}")
    for scan in scans:
        if not scan.is_as_expected:
            print_message(f"{scan.site.name} did not end as expected: {scan.site.expected_status}.")


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
