"""`siteatlas scan --processes`: the same output, and no process left behind."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.fixtures.commands import COMMAND, Machine
from tests.fixtures.documents import index_of, urlset_of
from tests.fixtures.site_server import Pages, SiteServer
from tests.fixtures.thread_server import running_site
from tests.fixtures.waiting import block_until

DOCUMENTS = 20
ENTRIES = 2000
# Its bytes hardly compress, so that few entries make a large site.
SEED = 7


def large_site() -> Pages:
    """Twenty documents, of which two are the same and one ends in the middle."""
    dice = random.Random(SEED)
    documents = {
        number: gzip.compress(
            urlset_of(f"https://a.example/{dice.randbytes(60).hex()}" for _ in range(ENTRIES))
        )
        for number in range(DOCUMENTS)
    }
    documents[7] = documents[8]
    documents[9] = documents[9][: len(documents[9]) // 2]
    return {
        "/robots.txt": "Sitemap: {base}/index.xml\n",
        "/index.xml": index,
        **{f"/{number}.xml.gz": document for number, document in documents.items()},
    }


def index(request: web.BaseRequest) -> bytes:
    base = f"http://{request.host}"
    return index_of(f"{base}/{number}.xml.gz" for number in range(DOCUMENTS))


async def silent(request: web.BaseRequest) -> web.StreamResponse:
    """The first bytes of a large document, then nothing."""
    answer = web.StreamResponse(headers={"Content-Length": "1000000"})
    await answer.prepare(request)
    await answer.write(gzip.compress(urlset_of(["https://a.example/1"]))[:20])
    await asyncio.sleep(60)
    return answer


@pytest.fixture(scope="module")
def site() -> Iterator[SiteServer]:
    with running_site(large_site()) as running:
        yield running


@pytest.fixture(scope="module")
def stalled_site() -> Iterator[SiteServer]:
    """The same site, but its last documents never end."""
    pages = dict(large_site()) | {f"/{number}.xml.gz": silent for number in range(10, DOCUMENTS)}
    with running_site(pages) as running:
        yield running


@pytest.fixture
def here(tmp_path: Path, site: SiteServer, stalled_site: SiteServer) -> Machine:
    allowed = f"{site.host_port},{stalled_site.host_port}"
    return Machine(tmp_path, {"SITEATLAS_EGRESS_ALLOW": allowed})


def children_of(pid: int) -> list[int]:
    try:
        return [int(i) for i in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.full
@pytest.mark.parametrize("format", ["urls", "jsonl", "csv"])
@pytest.mark.parametrize("more", [(), ("--include", "*a.example/0*")])
def test_two_processes_write_the_lines_of_one(
    here: Machine, site: SiteServer, format: str, more: tuple[str, ...]
):
    one, two = (
        here.run("scan", site.base, "--format", format, "--processes", number, *more)
        for number in ("1", "2")
    )
    assert two.returncode == one.returncode
    assert len(two.stdout) > 10_000
    assert sorted(two.stdout.splitlines()) == sorted(one.stdout.splitlines())


def test_two_processes_make_the_report_of_one(here: Machine, site: SiteServer):
    arguments = ("scan", site.base, "--json", "--fail-on", "partial", "--processes")
    one, two = (here.run(*arguments, number) for number in ("1", "2"))
    assert two.returncode == one.returncode != 0
    assert comparable(two.stdout) == comparable(one.stdout)


def comparable(output: str) -> dict[str, Any]:
    """A report without what differs between any two scans."""
    report: dict[str, Any] = json.loads(output)
    assert report["url_count"] > 19 * ENTRIES
    for sitemap in report["sitemaps"]:
        del sitemap["fetch_seconds"]
    for problem in report["problems"]:
        # Of two documents with the same content, the one that is read later has the problem.
        problem["url"] = problem["url"].replace("/7.xml.gz", "/8.xml.gz")
    report["problems"].sort(key=lambda problem: (problem["code"], problem["url"]))
    return report


def start(here: Machine, site: SiteServer) -> subprocess.Popen[bytes]:
    """A scan with a second process, both of which wait for the site."""
    scan = subprocess.Popen(
        [COMMAND, "scan", site.base, "--format", "urls", "--processes", "2", "-o", "urls.txt"],
        cwd=here.data_dir,
        env=here.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    block_until(lambda: f"/{DOCUMENTS - 7}.xml.gz" in site.paths)
    return scan


@pytest.mark.full
def test_an_interrupt_ends_the_other_process(here: Machine, stalled_site: SiteServer):
    stalled_site.requests.clear()
    scan = start(here, stalled_site)
    (child,) = children_of(scan.pid)
    scan.send_signal(signal.SIGINT)
    _, words = scan.communicate(timeout=20)
    assert scan.returncode == 130
    assert b"incomplete" in words
    assert not is_running(child)
    assert len((here.data_dir / "urls.txt").read_text().splitlines()) > 9 * ENTRIES


@pytest.mark.full
def test_a_killed_scan_leaves_no_process_behind(here: Machine, stalled_site: SiteServer):
    stalled_site.requests.clear()
    scan = start(here, stalled_site)
    (child,) = children_of(scan.pid)
    scan.kill()
    scan.communicate(timeout=20)
    block_until(lambda: not is_running(child), seconds=10)


@pytest.mark.full
def test_a_scan_goes_on_when_the_other_process_is_killed(here: Machine, site: SiteServer):
    expected = here.run("scan", site.base, "--format", "urls", "--processes", "1").stdout
    with here.process("scan", site.base, "--format", "urls", "--processes", "2") as scan:
        block_until(lambda: bool(children_of(scan.pid)))
        os.kill(children_of(scan.pid)[0], signal.SIGKILL)
        found, words = scan.communicate(timeout=20)
    assert scan.returncode == 0, words
    assert sorted(found.splitlines()) == sorted(expected.splitlines())


@pytest.mark.full
def test_a_small_site_is_read_by_one_process(here: Machine, tmp_path: Path):
    pages: Pages = {
        "/robots.txt": "Sitemap: {base}/sitemap.xml\n",
        "/sitemap.xml": silent,
    }
    with running_site(pages) as small:
        machine = Machine(tmp_path, {"SITEATLAS_EGRESS_ALLOW": small.host_port})
        with machine.process("scan", small.base, "--processes", "2") as scan:
            block_until(lambda: "/sitemap.xml" in small.paths)
            assert not children_of(scan.pid)
