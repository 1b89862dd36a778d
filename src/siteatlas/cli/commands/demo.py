"""`siteatlas demo`: runs the whole service against small sites on this machine."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import (
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import aiohttp
import typer
from rich.live import Live

from siteatlas.aio import background_task
from siteatlas.cli.hosting.connections import base_url, listen
from siteatlas.cli.hosting.server import Service
from siteatlas.cli.terminal.context import prepare
from siteatlas.cli.terminal.errors import INTERRUPTED, run
from siteatlas.cli.terminal.output import (
    Column,
    ColumnKind,
    can_show_progress,
    cell_text,
    console_for,
    counted,
    percent,
    print_message,
    write_table,
)
from siteatlas.cli.terminal.tables import drawn_table
from siteatlas.demo.changing import JOURNAL, MARKET, ChangingSite, keep_changing
from siteatlas.demo.server import PORTS, USUAL_PORT, DemoServer, DemoSite
from siteatlas.demo.sites import PLANS, SLOW_PLAN, SitePlan
from siteatlas.queue.fence import ACTIVE_STATUSES
from siteatlas.settings import MAX_PORT, Settings, default_data_dir
from siteatlas.storage.schema import make_older
from siteatlas.storage.session import get_session

app = typer.Typer(rich_markup_mode=None)
POLL_SECONDS = 0.1
RESPONSE_SECONDS = 30
# Between the scans of the history; after more than a week, charts show a gap.
DAYS_BETWEEN = (2, 1, 3, 2, 2, 9, 1, 2, 3, 1, 2, 2, 8, 2, 1, 3, 2, 2, 1, 2, 3, 3, 3)
NOTICE = (
    f"This is a demo; its sites are on this machine. Its history of {sum(DAYS_BETWEEN)} days was "
    "made at the first start: real scans of changing sites, with earlier dates."
)
CHANGING_SCAN_SECONDS = 10.0
SLOW_SCAN_SECONDS = 2.0
MODULE_FILE = "__main__.py"
NAME_WIDTH = 10

OWN_SCANS = (
    "The demo submits the repeated scans of the changing sites and of the slow one",
    "itself. The next scan that the dashboard shows is that of their schedule: once",
    "a day, as for any watched site.",
)

COLUMNS = [
    Column("SITE"),
    Column("ADDRESS", kind=ColumnKind.URL),
    Column("STATUS", kind=ColumnKind.STATUS),
    Column("SITEMAPS", right=True, kind=ColumnKind.COUNT),
    Column("URLS", right=True, kind=ColumnKind.COUNT),
    Column("REASON"),
]

PROGRESS_COLUMNS = [
    Column("SITE"),
    Column("STATUS"),
    Column("PROGRESS", right=True),
    Column("SITEMAPS", right=True),
    Column("URLS", right=True),
]


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

    The demo uses its own data directory. A second demo at the same time has another port for its
    sites, and another data directory. With --exit, the exit code is 1 if a result is unexpected,
    and there are no changing sites.
    """
    settings = prepare(log_level="error", host="127.0.0.1", port=port)
    living = LivingSites() if changing and not leave else None
    with listen(settings.host, settings.port) as listener:
        scans = run(_demo(settings, listener, living, leave=leave))
    if scans is None:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(0 if all(scan.is_as_expected for scan in scans) else 1)


def demo_settings(settings: Settings, server: DemoServer) -> Settings:
    """The settings of the demo: its own embedded database; its sites are allowed in addition."""
    entries = [site.host_port for site in server.sites]
    if settings.egress_allow:
        entries.append(settings.egress_allow)
    return replace(
        settings,
        database_url=None,
        data_dir=demo_data_dir(settings.data_dir, server.port),
        egress_allow=",".join(entries),
        notice=settings.notice or NOTICE,
        given=settings.given | {"data_dir", "egress_allow", "notice"},
    )


def demo_data_dir(data_dir: Path, port: int = USUAL_PORT) -> Path:
    """Beside the usual data directory, or inside one that was chosen; one for each port of sites.

    Under another port the sites would be other sites.
    """
    name = "demo" if port == USUAL_PORT else f"demo-{port}"
    if data_dir == default_data_dir():
        return data_dir.with_name(f"{data_dir.name}-{name}")
    return data_dir / name


async def _demo(
    settings: Settings, listener: socket.socket, living: LivingSites | None, *, leave: bool
) -> list[DemoScan] | None:
    """The scans of the demo sites; None if a signal ended the demo early."""
    plans = PLANS if living is None else (*PLANS, *living.plans)
    async with DemoServer(plans, PORTS) as server:
        own = demo_settings(settings, server)
        if server.port != USUAL_PORT:
            print_message(
                f"Port {USUAL_PORT} is in use, perhaps by another demo; this one has its own data."
            )
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


async def _tour(
    ready: asyncio.Event,
    address: str,
    sites: Sequence[DemoSite],
    living: LivingSites | None,
    *,
    leave: bool,
) -> list[DemoScan]:
    await ready.wait()
    async with new_client(address) as client:
        tour = Tour(client, watch=not leave)
        known = await tour.known_sites()
        if known:
            print_message(f"{len(known)} sites known from before.")
        if living is not None and sites[len(PLANS)].host_port not in known:
            print_message(f"Making a history of {sum(DAYS_BETWEEN)} days")
            await living.make_history(Tour(client), sites)
        if not leave:
            print_message(f"Dashboard: {address}/")
        fixed = sites[: len(PLANS)]
        print_message(f"Scanning {len(fixed)} demo sites through {address}")
        scans = await tour.scan(fixed)
    _print_results(sites, scans)
    return scans


async def _keep_living(
    living: LivingSites, address: str, sites: Sequence[DemoSite], serving: asyncio.Task[None]
) -> None:
    """Change and scan the sites of the demo until the service is stopped."""
    async with (
        new_client(address) as client,
        living.kept_going(Tour(client, watch=True), sites[len(PLANS) :]),
    ):
        await asyncio.wait([serving])


def _print_invitation(
    address: str, sites: Sequence[DemoSite], data_dir: Path, *, changing: bool
) -> None:
    for line in invitation(address, sites, data_dir, program_name(), changing=changing):
        print_message(line)


def invitation(
    address: str, sites: Sequence[DemoSite], data_dir: Path, program: str, *, changing: bool = False
) -> list[str]:
    """What to try while the demo runs: commands with the real addresses, ready to be copied.

    The lines fit 80 columns, unless the data directory has a long name.
    """
    first, second = sites[0], sites[1]
    own_data = f"  SITEATLAS_DATA_DIR={quote(str(data_dir))} \\"
    follow = [own_data, f"    {program} changes --follow", "", *OWN_SCANS, ""] if changing else []
    return [
        "",
        "Try it in another terminal:",
        "",
        f"  {program} scan {first.base_url} \\",
        f"    --allow {first.host_port}",
        "",
        f"  curl -X POST {address}/api/v3/sitemap/scan \\",
        "    -H 'Content-Type: application/json' \\",
        f'    -d \'{{"base_url": "{second.base_url}"}}\'',
        "",
        own_data,
        f"    {program} urls {first.host_port} --limit 10",
        "",
        *follow,
        f"Dashboard:  {address}/",
        f"All routes: {address}/docs",
        "Ctrl-C stops the demo.",
    ]


def program_name(called_as: str | None = None) -> str:
    """How the commands that `siteatlas demo` suggests call this program."""
    called_as = called_as or sys.argv[0]
    path = Path(called_as)
    if path.name == MODULE_FILE:
        return f"{quote(sys.executable)} -m siteatlas.cli"
    found = shutil.which(path.name)
    known = found is not None and path.exists() and Path(found).samefile(path)
    return path.name if known else quote(called_as)


def _print_results(sites: Sequence[DemoSite], scans: Sequence[DemoScan]) -> None:
    write_table(COLUMNS, map(_result_row, scans))
    print_message("")
    for site in sites:
        print_message(f"{site.name:<{NAME_WIDTH}}{site.description}")
    for scan in scans:
        if not scan.is_as_expected:
            print_message(f"{scan.site.name} did not end as expected: {scan.site.expected_status}.")


def _result_row(scan: DemoScan) -> list[object]:
    return [
        scan.site.name,
        scan.site.base_url,
        scan.shown_status,
        scan.sitemaps,
        scan.urls,
        scan.outcome_reason,
    ]


class Tour:
    """A client of the API, like any other program; it may ask for the sites to be watched."""

    def __init__(self, client: aiohttp.ClientSession, *, watch: bool = False) -> None:
        self._client = client
        self._watch = watch

    async def known_sites(self) -> set[str]:
        """The sites that the service knows."""
        async with self._client.get("/api/v3/domains", params={"limit": 1000}) as answer:
            answer.raise_for_status()
            return {str(site["domain"]) for site in (await answer.json())["items"]}

    async def scan(self, sites: Sequence[DemoSite]) -> list[DemoScan]:
        """Submit all sites and wait for the end of every scan."""
        addresses = [await self._submit(site) for site in sites]
        scans = [DemoScan(site) for site in sites]
        with _demo_progress() as progress:
            while not all(scan.ended for scan in scans):
                for number, address in enumerate(addresses):
                    if not scans[number].ended:
                        scans[number] = DemoScan(sites[number], await self._fetch_job(address))
                        progress.show(scans)
                await asyncio.sleep(POLL_SECONDS)
        return scans

    async def scan_once(self, site: DemoSite) -> None:
        """Submit a site and wait for the end of its scan, without showing its progress."""
        address = await self._submit(site)
        while True:
            if DemoScan(site, await self._fetch_job(address)).ended:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def scan_repeatedly(self, site: DemoSite, pause: float) -> None:
        """Scan a site again and again, until cancelled; a service that stops is no error."""
        while True:
            with suppress(aiohttp.ClientError, TimeoutError):
                await self.scan_once(site)
            await asyncio.sleep(pause)

    async def _submit(self, site: DemoSite) -> str:
        """Submit a demo site to the API; returns the address of its job."""
        body = {"base_url": site.base_url, "watch": self._watch}
        async with self._client.post("/api/v3/sitemap/scan", json=body) as answer:
            answer.raise_for_status()
            return str((await answer.json())["status_url"])

    async def _fetch_job(self, address: str) -> dict[str, Any]:
        async with self._client.get(address) as answer:
            answer.raise_for_status()
            job: dict[str, Any] = await answer.json()
            return job


def new_client(base_url: str) -> aiohttp.ClientSession:
    """A client of the service at `base_url`; proxies of the environment are not used."""
    limits = aiohttp.ClientTimeout(total=RESPONSE_SECONDS)
    return aiohttp.ClientSession(base_url, timeout=limits, trust_env=False)


@dataclass(frozen=True, slots=True)
class DemoScan:
    """A demo site, and its job as the API last reported it."""

    site: DemoSite
    job: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """The status of a job of `siteatlas demo`, as the API last reported it."""
        return str(self.job.get("status", "submitted"))

    @property
    def shown_status(self) -> str:
        """The status that `siteatlas demo` prints: partial, if the scan lost something."""
        partial = (self.job.get("result_data") or {}).get("partial")
        return "partial" if partial else self.status

    @property
    def ended(self) -> bool:
        """Whether a scan of `siteatlas demo` has a result."""
        return bool(self.job) and self.status not in ACTIVE_STATUSES

    @property
    def sitemaps(self) -> int:
        """Sitemaps that `siteatlas demo` read and stored so far."""
        return self._result_count("sitemap_count")

    @property
    def urls(self) -> int:
        """URLs that `siteatlas demo` stored so far."""
        return self._result_count("url_count")

    @property
    def outcome_reason(self) -> str | None:
        """The codes that `siteatlas demo` prints: why a scan failed or is partial."""
        if self.job.get("error_code"):
            return str(self.job["error_code"])
        return ", ".join((self.job.get("result_data") or {}).get("reasons") or []) or None

    @property
    def is_as_expected(self) -> bool:
        """Whether the scan ended as `siteatlas demo` expects of its site."""
        expected = (
            self.site.expected_status,
            self.site.expected_sitemaps,
            self.site.expected_urls,
            self.site.expected_error_code,
        )
        return (self.status, self.sitemaps, self.urls, self.job.get("error_code")) == expected

    def _result_count(self, name: str) -> int:
        """A count from the result of a job of `siteatlas demo`; 0 until there is one."""
        return int((self.job.get("result_data") or {}).get(name) or 0)


class LivingSites:
    """The changing sites and the slow one; `sites` are those that are served for `plans`."""

    def __init__(self) -> None:
        self._changing = [ChangingSite(JOURNAL), ChangingSite(MARKET)]

    @property
    def plans(self) -> tuple[SitePlan, ...]:
        """The changing sites, then the slow one."""
        return (*(site.plan for site in self._changing), SLOW_PLAN)

    async def make_history(self, tour: Tour, sites: Sequence[DemoSite]) -> None:
        """Scan all but the slow site, then the changing ones again, after a change or two.

        Nobody waits for these days: what was recorded is made older instead. No site may be
        watched yet, since it would be due.
        """
        await asyncio.gather(*map(tour.scan_once, sites[:-1]))
        for days in DAYS_BETWEEN:
            async with get_session() as session, session.begin():
                await make_older(session, timedelta(days=days))
            for changing in self._changing * min(days, 2):
                changing.step()
            await asyncio.gather(*map(tour.scan_once, sites[len(PLANS) : -1]))

    @asynccontextmanager
    async def kept_going(self, tour: Tour, sites: Sequence[DemoSite]) -> AsyncIterator[None]:
        """Go on changing the changing sites and scanning all of them while the block runs."""
        async with AsyncExitStack() as stack:
            for changing in self._changing:
                await stack.enter_async_context(background_task(keep_changing(changing)))
            for site in sites:
                pause = SLOW_SCAN_SECONDS if site is sites[-1] else CHANGING_SCAN_SECONDS
                repeated = tour.scan_repeatedly(site, pause)
                await stack.enter_async_context(background_task(repeated))
            yield


class DemoProgress:
    """Shows how far the scans are: a live table, or a line when a scan ends."""

    def __init__(self, live: Live | None) -> None:
        self._live = live
        self._reported: set[str] = set()

    def show(self, scans: Sequence[DemoScan]) -> None:
        """Show the progress of `siteatlas demo`: redraw the table, or print what ended."""
        if self._live is not None:
            self._live.update(
                drawn_table(PROGRESS_COLUMNS, [_progress_row(scan) for scan in scans]),
                refresh=True,
            )
            return
        for scan in scans:
            if scan.ended and scan.site.name not in self._reported:
                self._reported.add(scan.site.name)
                why = f" ({scan.outcome_reason})" if scan.outcome_reason else ""
                print_message(
                    f"{scan.site.name}: {scan.shown_status}{why}, "
                    f"{counted(scan.sitemaps, 'sitemap')}, {counted(scan.urls, 'URL')}"
                )


@contextmanager
def _demo_progress() -> Iterator[DemoProgress]:
    if not can_show_progress():
        yield DemoProgress(None)
        return
    with Live(console=console_for(sys.stderr), transient=True, auto_refresh=False) as live:
        yield DemoProgress(live)


def _progress_row(scan: DemoScan) -> list[str]:
    progress = percent(float(scan.job.get("progress") or 0))
    return [
        cell_text(value)
        for value in (scan.site.name, scan.shown_status, progress, scan.sitemaps, scan.urls)
    ]
