"""The demo run: submits every site over HTTP, reports the results, and suggests commands."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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

LOOK_SECONDS = 0.1
ANSWER_SECONDS = 30
MODULE_FILE = "__main__.py"
COLUMNS = [
    Column("SITE"),
    Column("STATUS"),
    Column("PROGRESS", right=True),
    Column("SITEMAPS", right=True),
    Column("URLS", right=True),
]


@dataclass(frozen=True, slots=True)
class DemoScan:
    """A demo site and what the API last said of its job."""

    site: DemoSite
    job: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """The status of the job."""
        return str(self.job.get("status", "submitted"))

    @property
    def shown_status(self) -> str:
        """The status, where a scan that lost something says so."""
        partial = (self.job.get("result_data") or {}).get("partial")
        return "partial" if partial else self.status

    @property
    def ended(self) -> bool:
        """Whether there is a result."""
        return bool(self.job) and self.status not in ACTIVE_STATUSES

    @property
    def sitemaps(self) -> int:
        """Sitemaps that were read and stored."""
        return self._number("sitemap_count")

    @property
    def urls(self) -> int:
        """URLs that were stored."""
        return self._number("url_count")

    @property
    def reason(self) -> str | None:
        """Why there is nothing, or not everything."""
        if self.job.get("error_code"):
            return str(self.job["error_code"])
        return ", ".join((self.job.get("result_data") or {}).get("reasons") or []) or None

    @property
    def as_told(self) -> bool:
        """Whether it ended as the story of the site says."""
        told = (
            self.site.expected_status,
            self.site.expected_sitemaps,
            self.site.expected_urls,
            self.site.expected_error_code,
        )
        return (self.status, self.sitemaps, self.urls, self.job.get("error_code")) == told

    def _number(self, name: str) -> int:
        return int((self.job.get("result_data") or {}).get(name) or 0)


class Tour:
    """A client of the API, like any other program."""

    def __init__(self, client: aiohttp.ClientSession) -> None:
        self._client = client

    async def known_sites(self) -> int:
        """How many sites the service knows."""
        async with self._client.get("/api/v3/domains", params={"limit": 1000}) as answer:
            answer.raise_for_status()
            return len((await answer.json())["items"])

    async def scan(self, sites: Sequence[DemoSite]) -> list[DemoScan]:
        """Submit all sites and wait for the end of every scan."""
        addresses = [await self._submit(site) for site in sites]
        visits = [DemoScan(site) for site in sites]
        with _board() as show:
            while not all(visit.ended for visit in visits):
                for number, address in enumerate(addresses):
                    if not visits[number].ended:
                        visits[number] = DemoScan(sites[number], await self._look(address))
                        show.update(visits)
                await asyncio.sleep(LOOK_SECONDS)
        return visits

    async def _submit(self, site: DemoSite) -> str:
        body = {"base_url": site.base_url}
        async with self._client.post("/api/v3/sitemap/scan", json=body) as answer:
            answer.raise_for_status()
            return str((await answer.json())["status_url"])

    async def _look(self, address: str) -> dict[str, Any]:
        async with self._client.get(address) as answer:
            answer.raise_for_status()
            job: dict[str, Any] = await answer.json()
            return job


class ProgressTable:
    """Shows how far the scans are: a table that moves, or a line when a scan ends."""

    def __init__(self, live: Live | None) -> None:
        self._live = live
        self._told: set[str] = set()

    def update(self, visits: Sequence[DemoScan]) -> None:
        """Show the newest state."""
        if self._live is not None:
            self._live.update(drawn_table(COLUMNS, [_row(visit) for visit in visits]), refresh=True)
            return
        for visit in visits:
            if visit.ended and visit.site.name not in self._told:
                self._told.add(visit.site.name)
                why = f" ({visit.reason})" if visit.reason else ""
                print_message(
                    f"{visit.site.name}: {visit.shown_status}{why}, "
                    f"{counted(visit.sitemaps, 'sitemap')}, {counted(visit.urls, 'URL')}"
                )


@contextmanager
def _board() -> Iterator[ProgressTable]:
    if not can_show_progress():
        yield ProgressTable(None)
        return
    with Live(console=console_for(sys.stderr), transient=True, auto_refresh=False) as live:
        yield ProgressTable(live)


def _row(visit: DemoScan) -> list[str]:
    progress = percent(float(visit.job.get("progress") or 0))
    return [
        cell_text(value)
        for value in (visit.site.name, visit.shown_status, progress, visit.sitemaps, visit.urls)
    ]


def new_client(base_url: str) -> aiohttp.ClientSession:
    """A client of the service at `base_url`; proxies of the environment are not used."""
    limits = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    return aiohttp.ClientSession(base_url, timeout=limits, trust_env=False)


def invitation(address: str, sites: Sequence[DemoSite], data_dir: Path, program: str) -> list[str]:
    """What to try while the demo runs: commands with the real addresses, ready to be copied.

    The lines fit 80 columns, unless the data directory has a long name.
    """
    first, second = sites[0], sites[1]
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
        f"  SITEATLAS_DATA_DIR={quote(str(data_dir))} \\",
        f"    {program} urls {first.host_port} --limit 10",
        "",
        f"In a browser: {address}/api/v3/domains/{first.host_port}/sitemaps",
        f"All routes:   {address}/docs",
        "Ctrl-C stops the demo.",
    ]


def program_name(called_as: str | None = None) -> str:
    """How the person who started this process calls it."""
    called_as = called_as or sys.argv[0]
    path = Path(called_as)
    if path.name == MODULE_FILE:
        return f"{quote(sys.executable)} -m siteatlas.cli"
    found = shutil.which(path.name)
    known = found is not None and path.exists() and Path(found).samefile(path)
    return path.name if known else quote(called_as)
