"""The tour of the demo: submit every site over HTTP, follow the scans, and tell how they end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from rich.live import Live

from siteatlas.cli.terminal.choices import counted
from siteatlas.cli.terminal.output import (
    Column,
    can_show_progress,
    cell_text,
    console_for,
    drawn_table,
    percent,
    print_message,
)
from siteatlas.demo.server import DemoSite

LOOK_SECONDS = 0.1
ANSWER_SECONDS = 30
UNFINISHED_STATUSES = {"pending", "processing"}
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
        return bool(self.job) and self.status not in UNFINISHED_STATUSES

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
