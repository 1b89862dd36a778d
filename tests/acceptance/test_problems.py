"""Problems from a site on loopback to the lines that a person reads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fixtures.commands import Machine
from tests.fixtures.documents import urlset
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


def groups(site: SiteServer) -> list[str]:
    return [
        "duplicate_url: a URL that the same document has listed before",
        f"  1 in {site.base}/s.xml",
        f"    {site.base}/1",
        "lastmod_invalid: a lastmod that is no date; the entry is kept without it",
        f"  1 in {site.base}/s.xml",
        f"    entry 1: {site.base}/1  'yesterday'",
    ]


def test_a_verbose_scan_shows_each_problem_with_samples(fresh_machine: Machine, site: SiteServer):
    result = fresh_machine.run("scan", "-v", "--allow", site.host_port, site.base)
    shown = [line[2:] for line in result.stderr.splitlines() if line.startswith("  ")]
    assert shown == groups(site)
