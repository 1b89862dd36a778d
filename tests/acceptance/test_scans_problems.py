"""Problems from a site on loopback to the lines that a person reads, with and without a database."""

from __future__ import annotations

import csv
from collections.abc import Iterator

import pytest

from siteatlas.cli.terminal.lines import plain_meaning
from siteatlas.storage.embedded.server import EmbeddedServer
from tests.fixtures.commands import Machine
from tests.fixtures.documents import urlset
from tests.fixtures.embedded import data_directory
from tests.fixtures.site_server import SiteServer
from tests.fixtures.thread_server import running_site

ENTRIES = (
    "<url><loc>{base}/1</loc><lastmod>yesterday</lastmod></url>"
    "<url><loc>{base}/2</loc><lastmod>2026</lastmod></url>"
    "<url><loc>{base}/1</loc></url>"
)


@pytest.fixture
def site() -> Iterator[SiteServer]:
    pages = {"/robots.txt": "Sitemap: {base}/s.xml", "/s.xml": urlset(ENTRIES).decode()}
    with running_site(pages) as running:
        yield running


def groups(site: SiteServer, remark: str = "") -> list[str]:
    return [
        f"duplicate_url: {plain_meaning('duplicate_url')}",
        f"  1 in {site.base}/s.xml{remark}",
        f"    {site.base}/1",
        f"lastmod_invalid: {plain_meaning('lastmod_invalid')}",
        f"  1 in {site.base}/s.xml{remark}",
        f"    entry 1: {site.base}/1  'yesterday'",
    ]


def test_a_verbose_scan_shows_each_problem_with_samples(fresh_machine: Machine, site: SiteServer):
    result = fresh_machine.run("scan", "-v", "--allow", site.host_port, site.base)
    shown = [line[2:] for line in result.stderr.splitlines() if line.startswith("  ")]
    assert shown == groups(site)


@pytest.fixture
def allowed_machine(site: SiteServer) -> Iterator[Machine]:
    """A machine whose database keeps running between commands, and that may scan the site."""
    with data_directory() as folder, EmbeddedServer(folder, announce=lambda _text: None):
        yield Machine(folder, {"SITEATLAS_EGRESS_ALLOW": site.host_port})


def test_a_stored_site_shows_the_same_problems(allowed_machine: Machine, site: SiteServer):
    allowed_machine.run("domains", "add", site.base)
    allowed_machine.run("scheduler", "run-once")
    result = allowed_machine.run("problems", site.host_port)
    assert result.stdout.splitlines() == groups(site, ", scan 1")
    listed = allowed_machine.json("problems", site.host_port)["items"]
    assert [item["code"] for item in listed] == ["duplicate_url", "lastmod_invalid"]
    assert listed[1]["samples"] == [{"url": f"{site.base}/1", "value": "yesterday", "entry": 1}]
    table = allowed_machine.run("problems", site.host_port, "--format", "csv", "--code", "scope")
    assert list(csv.reader(table.stdout.splitlines())) == [list(listed[0])]
    urls = allowed_machine.json("urls", site.host_port)["items"]
    assert {item["lastmod_text"] for item in urls} == {"yesterday", "2026"}
