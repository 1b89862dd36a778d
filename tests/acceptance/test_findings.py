"""`siteatlas findings`: from a site on loopback to what a person reads and accepts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from siteatlas.findings.rules import all_rules
from siteatlas.storage.embedded.server import EmbeddedServer
from tests.fixtures.commands import Machine
from tests.fixtures.documents import urlset
from tests.fixtures.embedded import data_directory
from tests.fixtures.site_server import SiteServer
from tests.fixtures.thread_server import running_site

ENTRIES = "<url><loc>{base}/1</loc><lastmod>yesterday</lastmod></url><url><loc>/2</loc></url>"
pytestmark = pytest.mark.slow


@pytest.fixture
def site() -> Iterator[SiteServer]:
    pages = {"/robots.txt": "Sitemap: {base}/s.xml", "/s.xml": urlset(ENTRIES).decode()}
    with running_site(pages) as running:
        yield running


def test_findings_are_listed_and_accepted(site: SiteServer):
    name = site.host_port
    with data_directory() as folder, EmbeddedServer(folder, announce=lambda _text: None):
        machine = Machine(folder, {"SITEATLAS_EGRESS_ALLOW": name})
        machine.run("domains", "add", site.base)
        machine.run("scheduler", "run-once")
        shown = machine.run("findings", name, "--severity", "error").stdout.splitlines()
        assert f"error lastmod-invalid: {all_rules()['lastmod-invalid'].title}" in shown
        assert f"    {site.base}/1 yesterday" in shown
        codes = {item["code"] for item in machine.json("findings", name)["items"]}
        assert {"lastmod-invalid", "url-relative"} <= codes
        refused = machine.run("findings", name, "--accept", "a test")
        assert (refused.returncode, "--code CODE" in refused.stderr) == (2, True)
        done = machine.run("findings", name, "--code", "lastmod_invalid", "--accept", "a test")
        assert "1 finding are accepted." not in done.stderr
        assert "1 finding is accepted." in done.stderr
        rest = {item["code"] for item in machine.json("findings", name)["items"]}
        assert rest == codes - {"lastmod-invalid"}
