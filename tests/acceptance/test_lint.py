"""`siteatlas lint` and `siteatlas rules` as programs in a build: files, stdin, sites, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.findings.cases import SITE, around, page, pages_of
from tests.fixtures.commands import COMMAND, Machine
from tests.fixtures.site_server import SiteServer
from tests.fixtures.thread_server import running_site

GOOD, FAULTY = around(pages_of(3)), around(page("/a"))


@pytest.fixture
def build(tmp_path: Path) -> Machine:
    """A folder of a build, with a good sitemap in `public`."""
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "sitemap.xml").write_text(GOOD)
    return Machine(tmp_path)


@pytest.fixture
def site() -> Iterator[SiteServer]:
    pages = {
        "/robots.txt": "User-agent: *\nDisallow: /page/1\nSitemap: {base}/sitemap.xml\n",
        "/sitemap.xml": GOOD.replace(SITE, "{base}"),
    }
    with running_site(pages) as server:
        yield server


def test_a_clean_folder_ends_with_zero_and_a_summary(build: Machine):
    result = build.run("lint", "public")
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == "No findings in 1 document.\n"


def test_a_finding_ends_with_one_and_is_written_in_several_formats(build: Machine):
    (build.data_dir / "public" / "sitemap.xml").write_text(FAULTY)
    formats = ("--format", "text", "--format", "sarif=out.sarif", "--format", "json=out.json")
    result = build.run("lint", "public", *formats, GITHUB_STEP_SUMMARY="summary.md")
    assert result.returncode == 1
    assert result.stdout.startswith("public/sitemap.xml:3:11: error url-relative: ")
    assert json.loads((build.data_dir / "out.sarif").read_bytes())["runs"][0]["results"]
    assert json.loads((build.data_dir / "out.json").read_bytes())["documents"] == 1
    assert "url-relative" in (build.data_dir / "summary.md").read_text()
    assert build.run("lint", "public", "--fail-on", "never").returncode == 0
    assert build.run("lint", "public", "--ignore", "url-relative").returncode == 0


def test_wrong_usage_ends_with_two(build: Machine):
    for arguments in (
        ["lint"],
        ["lint", "public", "--select", "url-wrong"],
        ["lint", "public", "--format", "xml"],
        ["lint", "public", "--format", "json=/no/such/folder/x"],
        ["lint", "public", "--write-baseline", "/no/such/folder/x"],
        ["lint", "public", "--github-summary", "/no/such/folder/x"],
        ["lint", "--explain", "url-wrong"],
    ):
        assert build.run(*arguments).returncode == 2, arguments


def test_a_document_that_cannot_be_read_ends_with_three(build: Machine):
    result = build.run("lint", "public", "./gone.xml")
    assert result.returncode == 3
    assert "Not read: gone.xml" in result.stderr


def test_a_baseline_is_written_and_kept_to(build: Machine):
    sitemap = build.data_dir / "public" / "sitemap.xml"
    sitemap.write_text(FAULTY)
    assert build.run("lint", "public", "--write-baseline", "known.json").returncode == 0
    assert build.run("lint", "public", "--baseline", "known.json").returncode == 0
    sitemap.write_text(around(page("/a") + page("/b")))
    assert build.run("lint", "public", "--baseline", "known.json").returncode == 1
    sitemap.write_text(GOOD)
    result = build.run("lint", "public", "--baseline", "known.json")
    assert result.returncode == 0
    assert "url-relative in public/sitemap.xml" in result.stderr


def test_a_sitemap_on_stdin_has_places_too(build: Machine):
    result = subprocess.run(
        [COMMAND, "lint", "-"],
        input=FAULTY,
        capture_output=True,
        text=True,
        env=build.environment,
        check=False,
    )
    assert result.returncode == 1
    assert result.stdout.startswith("stdin:3:11: error url-relative: ")


def test_a_site_is_judged_with_its_robots(build: Machine, site: SiteServer):
    result = build.run("lint", site.base, "--allow", site.host_port, "--format", "jsonl")
    assert result.returncode == 1, result.stderr
    found = {line["rule"]: line for line in map(json.loads, result.stdout.splitlines())}
    assert set(found) == {"url-disallowed"}
    assert found["url-disallowed"]["document"] == f"{site.base}/sitemap.xml"
    assert found["url-disallowed"]["samples"][0]["url"] == f"{site.base}/page/1"


def test_one_sitemap_of_a_site_can_be_judged_alone(build: Machine, site: SiteServer):
    address = f"{site.base}/sitemap.xml"
    result = build.run("lint", address, "--only", "--allow", site.host_port)
    assert "in 1 document." in result.stderr


def test_a_rule_is_explained_without_reading_anything(build: Machine):
    explained = build.run("lint", "--explain", "url-relative")
    assert explained.returncode == 0
    assert "Write scheme and host." in explained.stdout
    assert build.run("rules", "url-relative").stdout == explained.stdout


def test_the_hook_for_pre_commit_names_the_command_and_its_files(project: Path):
    (hook,) = yaml.safe_load((project / ".pre-commit-hooks.yaml").read_text())
    assert (hook["id"], hook["entry"]) == ("siteatlas-lint", "siteatlas lint")
    assert hook["language"] == "python"


@pytest.mark.parametrize("sarif", ["", "out.sarif"])
def test_the_action_runs_the_command_with_its_inputs(build: Machine, project: Path, sarif: str):
    action = yaml.safe_load((project / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    script = action["runs"]["steps"][-1]["run"]
    bin_folder = build.data_dir / "siteatlas" / "bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "siteatlas").symlink_to(COMMAND)
    (build.data_dir / "public" / "sitemap.xml").write_text(FAULTY)
    result = build.execute(
        ["bash", "-e", "-c", script],
        RUNNER_TEMP=str(build.data_dir),
        PATHS="public",
        ARGS="--fail-on never",
        SARIF=sarif,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("::error file=public/sitemap.xml,line=3,col=11")
    assert (build.data_dir / "out.sarif").exists() is bool(sarif)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process")
def test_the_memory_does_not_grow_with_the_bytes_of_a_document(build: Machine):
    peaks = []
    for length in (20, 1000):
        text = around("".join(page(f"{SITE}/{'x' * length}{n}") for n in range(20_000)))
        file = build.data_dir / f"sitemap-{length}.xml"
        file.write_text(text)
        process = subprocess.Popen(
            [COMMAND, "lint", str(file)],
            env=build.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        peaks.append(usage.ru_maxrss)
    assert peaks[1] < peaks[0] * 1.2
