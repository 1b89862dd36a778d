"""Siteatlas as a library: typed entries, with and without an event loop."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime

import pytest

import siteatlas
from siteatlas import Entry, scan, scan_sync
from siteatlas.errors import AddressError, EgressDenied, NoSitemap
from tests.fixtures.site_server import Pages, SiteServer
from tests.fixtures.thread_server import running_site

MANY = 20_000


@pytest.fixture(scope="module")
def site() -> Iterator[SiteServer]:
    """Two sitemaps: one small, one large."""
    large = "".join(f"<url><loc>{{base}}/{number}</loc></url>" for number in range(MANY))
    pages: Pages = {
        "/robots.txt": "Sitemap: {base}/small.xml\nSitemap: {base}/large.xml\n",
        "/small.xml": "<urlset><url><loc>{base}/a</loc><lastmod>2026-01-02</lastmod>"
        "<changefreq>daily</changefreq><priority>0.8</priority></url></urlset>",
        "/large.xml": f"<urlset>{large}</urlset>",
    }
    with running_site(pages) as running:
        yield running


@pytest.fixture
def empty_site() -> Iterator[SiteServer]:
    with running_site({}) as running:
        yield running


def scan_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "siteatlas-scan"]


async def test_an_async_scan_gives_typed_entries(site: SiteServer):
    entries = [entry async for entry in scan(site.base, allow=[site.host_port])]
    assert len(entries) == MANY + 1
    (small,) = [entry for entry in entries if entry.sitemap.endswith("/small.xml")]
    assert small == Entry(
        url=f"{site.base}/a",
        lastmod=datetime(2026, 1, 2, tzinfo=UTC),
        changefreq="daily",
        lastmod_text="2026-01-02",
        priority=0.8,
        extras=None,
        sitemap=f"{site.base}/small.xml",
    )
    with pytest.raises(FrozenInstanceError):
        small.url = "other"  # type: ignore[misc]


def test_a_sync_scan_gives_the_same(site: SiteServer):
    entries = list(scan_sync(site.base, allow=[site.host_port]))
    assert len(entries) == MANY + 1
    assert scan_threads() == []


async def test_a_sync_scan_works_inside_a_running_loop(site: SiteServer):
    assert len(list(scan_sync(site.base, allow=site.host_port, max_urls=5))) == 5


def test_a_sync_scan_that_is_left_early_stops_its_thread(site: SiteServer):
    for entry in scan_sync(site.base, allow=[site.host_port]):
        assert entry.url
        assert len(scan_threads()) == 1
        break
    assert scan_threads() == []


async def test_an_async_scan_can_be_closed_early(site: SiteServer):
    async with aclosing(scan(site.base, allow=[site.host_port])) as entries:
        assert (await anext(entries)).url


def test_the_limit_and_the_user_agent_are_kept(site: SiteServer):
    site.requests.clear()
    entries = scan_sync(site.base, allow=[site.host_port], max_urls=7, user_agent="Mine/1")
    assert len(list(entries)) == 7
    assert {request.headers["User-Agent"] for request in site.requests} == {"Mine/1"}


def test_the_reason_of_a_failure_is_raised_where_entries_are_read(empty_site: SiteServer):
    with pytest.raises(NoSitemap):
        list(scan_sync(empty_site.base, allow=[empty_site.host_port]))
    assert scan_threads() == []


async def test_the_reason_of_a_failure_is_raised_in_the_loop(empty_site: SiteServer):
    with pytest.raises(NoSitemap):
        [entry async for entry in scan(empty_site.base, allow=[empty_site.host_port])]


def test_chosen_sitemaps_are_read_without_a_warning(site: SiteServer):
    entries = scan_sync(site.base, allow=[site.host_port], skip_sitemaps="*", strict=True)
    list(entries)
    assert entries.report.reasons == ["sitemaps_filtered"]


def test_private_addresses_are_refused_unless_they_are_named(site: SiteServer):
    with pytest.raises(EgressDenied):
        next(scan_sync(site.base))
    with pytest.raises(AddressError):
        next(scan_sync("no host"))


def run_program(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_program_that_forgets_its_scan_still_ends(site: SiteServer):
    program = (
        "import sys\nfrom siteatlas import scan_sync\n"
        "entries = scan_sync(sys.argv[1], allow=[sys.argv[2]])\n"
        "print(next(entries).url)\n"
    )
    result = run_program(program, site.base, site.host_port)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(site.base)


def test_the_library_prints_nothing_by_itself(empty_site: SiteServer):
    program = (
        "import sys\nfrom siteatlas import scan_sync\n"
        "try:\n    list(scan_sync(sys.argv[1], allow=[sys.argv[2]]))\n"
        "except Exception as error:\n    print(type(error).__name__)\n"
    )
    result = run_program(program, empty_site.base, empty_site.host_port)
    assert (result.stdout, result.stderr) == ("NoSitemap\n", "")


def test_importing_the_package_loads_nothing_else():
    program = "import sys, json, siteatlas\nprint(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(run_program(program).stdout))
    assert not {name for name in loaded if name.startswith("siteatlas.")}
    assert not loaded & {"asyncio", "aiohttp", "lxml", "pydantic", "importlib.metadata"}


def test_the_package_shows_its_names():
    assert {"Entry", "scan", "scan_sync", "__version__"} <= set(dir(siteatlas))
    with pytest.raises(AttributeError, match="nothing_such"):
        siteatlas.nothing_such  # noqa: B018
