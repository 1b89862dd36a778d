"""Choices of `siteatlas scan`: one document, several sites, a timeout, and what counts as a failure."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator

import pytest
from aiohttp import web

from tests.fixtures.commands import Machine
from tests.fixtures.documents import index_of, urlset_of
from tests.fixtures.embedded import data_directory
from tests.fixtures.site_server import SiteServer
from tests.fixtures.thread_server import running_site


@pytest.fixture
def here() -> Iterator[Machine]:
    with data_directory() as folder:
        yield Machine(folder)


async def hang(_request: web.BaseRequest) -> str:
    await asyncio.sleep(30)
    return ""


@pytest.fixture(scope="module")
def site() -> Iterator[SiteServer]:
    with running_site(
        {
            "/robots.txt": "Sitemap: {base}/a.xml\nSitemap: {base}/index.xml\n",
            "/a.xml": urlset_of(["{base}/1", "{base}/2"]).decode(),
            "/index.xml": index_of(["{base}/child.xml", "{base}/missing.xml"]).decode(),
            "/child.xml": urlset_of(["https://a.example/child"]),
            "/dated.xml": "<urlset><url><loc>{base}/d</loc><lastmod>soon</lastmod></url></urlset>",
            "/slow-index.xml": index_of(["{base}/child.xml", "{base}/hang.xml"]).decode(),
            "/hang.xml": hang,
        }
    ) as running:
        yield running


@pytest.fixture
def allowed(site: SiteServer) -> tuple[str, str]:
    site.requests.clear()
    return "--allow", site.host_port


def test_only_the_named_document_is_read(here: Machine, site: SiteServer, allowed):
    result = here.run("scan", f"{site.base}/a.xml", "--only", "--format", "urls", *allowed)
    assert (result.returncode, result.stdout.split()) == (
        0,
        [f"{site.base}/1", f"{site.base}/2"],
    )
    assert site.paths == ["/robots.txt", "/a.xml"]


def test_chosen_sitemaps_of_an_index_are_read_and_the_others_counted(
    here: Machine, site: SiteServer, allowed
):
    address = f"{site.base}/index.xml"
    chosen = ("--sitemaps", "*/child*", "--skip-sitemaps", "*/missing*")
    result = here.run("scan", address, "--only", "--json", *chosen, *allowed)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["url_count"], report["reasons"]) == (1, ["sitemaps_filtered"])
    assert report["skipped_sitemaps"] == {"by_address": 1, "by_date": 0}
    assert "/missing.xml" not in site.paths
    assert "not read because of the filter: 1 sitemap by address" in result.stderr
    refused = here.run("scan", address, "--sitemaps", "x" * 201, *allowed)
    assert (refused.returncode, "1 to 200 characters" in refused.stderr) == (2, True)


@pytest.mark.full
def test_a_partial_scan_fails_when_that_is_asked_for(here: Machine, site: SiteServer, allowed):
    assert here.run("scan", site.base, *allowed).returncode == 0
    assert here.run("scan", site.base, "--fail-on", "partial", *allowed).returncode == 1
    whole = ("scan", f"{site.base}/a.xml", "--only", *allowed)
    assert here.run(*whole, "--fail-on", "partial").returncode == 0
    assert here.run(*whole, "--fail-on", "problems").returncode == 0
    faulty = ("scan", f"{site.base}/dated.xml", "--only", *allowed)
    assert here.run(*faulty, "--fail-on", "partial").returncode == 0
    assert here.run(*faulty, "--fail-on", "problems").returncode == 1


def test_several_sites_are_one_stream(here: Machine, site: SiteServer, allowed):
    (here.data_dir / "local.xml").write_bytes(urlset_of(["https://a.example/local"]))
    documents = [f"{site.base}/a.xml", f"{site.base}/child.xml", "./local.xml"]
    result = here.run("scan", *documents, "--only", "--format", "jsonl", *allowed)
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert sorted({row["site"] for row in rows}) == sorted([*documents[:2], "local.xml"])
    assert len(rows) == 4


def test_one_bad_site_of_several_is_reported_and_passed_over(
    here: Machine, site: SiteServer, allowed
):
    result = here.run("scan", "no host", f"{site.base}/a.xml", "--format", "urls", *allowed)
    assert result.returncode == 2
    assert "no host" in result.stderr
    assert f"{site.base}/1" in result.stdout


@pytest.mark.full
def test_a_timeout_ends_a_scan_with_what_was_read(here: Machine, site: SiteServer, allowed):
    address = f"{site.base}/slow-index.xml"
    result = here.run("scan", address, "--only", "--timeout", "2", "--json", *allowed)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["url_count"], report["partial"]) == (1, True)
    assert report["reasons"] == ["scan_timeout"]
    outcomes = {one["url"].removeprefix(site.base): one["outcome"] for one in report["sitemaps"]}
    assert outcomes["/hang.xml"] == "unread"


@pytest.mark.full
def test_the_package_runs_as_a_module_and_knows_the_word_help(here: Machine):
    assert here.run("help").stdout == here.run("--help").stdout
    assert here.run("help", "jobs", "list").stdout == here.run("jobs", "list", "--help").stdout
    assert here.run("help", "nosuch").returncode == 2
    module = here.execute([sys.executable, "-m", "siteatlas", "--version"])
    assert module.stdout == here.run("--version").stdout
