"""The demo run: submits every site over HTTP, reports the results, and suggests commands."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

import aiohttp
from rich.live import Live

from siteatlas.cli.terminal.choices import counted
from siteatlas.cli.terminal.drawing import console_for, drawn_table
from siteatlas.cli.terminal.output import (
    Column,
    can_show_progress,
    cell_text,
    percent,
    print_message,
)
from siteatlas.demo.server import DemoSite
from siteatlas.queue.statuses import ACTIVE_STATUSES

POLL_SECONDS = 0.1
RESPONSE_SECONDS = 30
MODULE_FILE = "__main__.py"
OWN_SCANS = (
    "The demo submits the repeated scans of the changing sites and of the slow one",
    "itself. The next scan that the dashboard shows is that of their schedule: once",
    "a day, as for any watched site.",
)
COLUMNS = [
    Column("SITE"),
    Column("STATUS"),
    Column("PROGRESS", right=True),
    Column("SITEMAPS", right=True),
    Column("URLS", right=True),
]


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


class Tour:
    """A client of the API, like any other program; it may ask for the sites to be watched."""

    def __init__(self, client: aiohttp.ClientSession, *, watch: bool = False) -> None:
        self._client = client
        self._watch = watch

    async def known_sites(self) -> int:
        """How many sites the service knows."""
        async with self._client.get("/api/v3/domains", params={"limit": 1000}) as answer:
            answer.raise_for_status()
            return len((await answer.json())["items"])

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
        """Get the job of a demo site from the API, for `siteatlas demo`."""
        async with self._client.get(address) as answer:
            answer.raise_for_status()
            job: dict[str, Any] = await answer.json()
            return job


class DemoProgress:
    """Shows how far the scans are: a live table, or a line when a scan ends."""

    def __init__(self, live: Live | None) -> None:
        self._live = live
        self._reported: set[str] = set()

    def show(self, scans: Sequence[DemoScan]) -> None:
        """Show the progress of `siteatlas demo`: redraw the table, or print what ended."""
        if self._live is not None:
            self._live.update(
                drawn_table(COLUMNS, [_progress_row(scan) for scan in scans]), refresh=True
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
    """The progress display of `siteatlas demo`, while the block runs."""
    if not can_show_progress():
        yield DemoProgress(None)
        return
    with Live(console=console_for(sys.stderr), transient=True, auto_refresh=False) as live:
        yield DemoProgress(live)


def _progress_row(scan: DemoScan) -> list[str]:
    """One row of the live progress table of `siteatlas demo`."""
    progress = percent(float(scan.job.get("progress") or 0))
    return [
        cell_text(value)
        for value in (scan.site.name, scan.shown_status, progress, scan.sitemaps, scan.urls)
    ]


def new_client(base_url: str) -> aiohttp.ClientSession:
    """A client of the service at `base_url`; proxies of the environment are not used."""
    limits = aiohttp.ClientTimeout(total=RESPONSE_SECONDS)
    return aiohttp.ClientSession(base_url, timeout=limits, trust_env=False)


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
        f"  {program} scan {first.base_url} --allow {first.host_port}",
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
