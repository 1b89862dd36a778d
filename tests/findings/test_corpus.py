"""Each rule that lint judges finds its fault, and leaves alone what is nearly one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from siteatlas.cli.lint.reading import Network, lint_all
from siteatlas.errors import ConnectionFailed
from siteatlas.findings.judging import Finding
from siteatlas.findings.rules import all_rules
from siteatlas.findings.site import SiteJudge
from siteatlas.settings import Settings
from tests.findings.cases import CASES, HOME, SITES, Files, Pages
from tests.fixtures.site_server import SiteServer

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
# They have a test of their own: a host that is closed, and a site with a page for every path.
APART = {"sitemap-network-error", "sitemap-soft-404"}
# What a case cannot do without.
ALSO = {
    "document-unreadable": {"doctype-present"},
    "encoding-not-utf8": {"url-not-escaped"},
    "encoding-lie": {"url-not-escaped"},
    "content-after-end": {"element-unknown"},
    "forbidden-character": {"image-tag-dropped"},
    "too-many-urls": {"near-the-limit", "lastmod-missing"},
    "too-large": {"url-too-long", "url-over-1024", "near-the-limit", "lastmod-missing"},
    "near-the-limit": {"lastmod-missing"},
    "index-too-many": {"near-the-limit"},
    "url-too-long": {"url-over-1024"},
    "url-over-8192": {"url-too-long"},
    "lastmod-missing": {"url-twice"},
    "changefreq-invalid": {"changefreq-ignored"},
    "priority-invalid": {"priority-ignored"},
    "image-too-many": {"extras-cut"},
    "hreflang-code-invalid": {"hreflang-target-unlisted"},
    "hreflang-no-self": {"hreflang-target-unlisted"},
    "sitemaps-identical": {"url-in-several-sitemaps"},
}


async def codes_of_files(folder: Path, files: Files) -> set[str]:
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    linted = await lint_all([str(folder / name) for name in files], NOW, Network(Settings))
    assert linted.unread == []
    return {finding.code for finding in linted.findings}


async def findings_of_site(pages: Pages) -> list[Finding]:
    async with SiteServer(pages) as server:  # type: ignore[arg-type]
        network = Network(partial(Settings, host_delay=0.0), [server.host_port])
        return (await lint_all([server.base], NOW, network)).findings


@pytest.fixture
async def catch_all() -> AsyncIterator[SiteServer]:
    async with SiteServer() as server:
        server.otherwise = HOME
        yield server


def test_the_corpus_has_a_case_for_every_rule_that_lint_judges():
    judged = {rule.code for rule in all_rules().values() if rule.lint}
    assert set(CASES) | set(SITES) | APART == judged


@pytest.mark.parametrize("code", CASES)
async def test_a_document_with_the_fault_has_no_other_finding(code: str, tmp_path: Path):
    found = await codes_of_files(tmp_path, CASES[code].fault)
    assert found - ALSO.get(code, set()) == {code}


@pytest.mark.parametrize("code", CASES)
async def test_a_document_that_nearly_has_the_fault_has_no_finding(code: str, tmp_path: Path):
    found = await codes_of_files(tmp_path, CASES[code].near)
    assert found - ALSO.get(code, set()) == set()


@pytest.mark.slow
@pytest.mark.parametrize("code", SITES)
async def test_a_site_with_the_fault_is_found(code: str):
    assert code in {finding.code for finding in await findings_of_site(SITES[code][0])}


@pytest.mark.slow
@pytest.mark.parametrize("code", SITES)
async def test_a_site_that_nearly_has_the_fault_is_not(code: str):
    assert code not in {finding.code for finding in await findings_of_site(SITES[code][1])}


@pytest.mark.slow
async def test_a_page_for_every_path_is_a_soft_404_and_no_sitemap(catch_all: SiteServer):
    network = Network(Settings, [catch_all.host_port])
    linted = await lint_all([catch_all.base], NOW, network)
    assert "sitemap-soft-404" in {finding.code for finding in linted.findings}


@pytest.mark.slow
async def test_a_host_that_does_not_answer_is_not_a_clean_site():
    async with SiteServer() as server:
        closed = server.host_port
    linted = await lint_all([f"http://{closed}/"], NOW, Network(Settings, [closed]))
    assert {finding.code for finding in linted.findings} == {"sitemap-network-error"}
    assert [name for name, _ in linted.unread] == [f"http://{closed}/robots.txt"]


def test_an_error_without_a_rule_is_left_to_the_caller():
    judge = SiteJudge("https://example.com/robots.txt", NOW)
    assert judge.fail(ConnectionFailed())
    assert [finding.code for finding in judge.close()] == ["sitemap-network-error"]
