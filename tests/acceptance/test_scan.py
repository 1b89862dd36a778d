"""`siteatlas scan` as a tool in its own right: real processes, files, pipes and signals."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from siteatlas.demo.server import DemoSite
from tests.fixtures.commands import COMMAND, Machine
from tests.fixtures.documents import index_of, urlset
from tests.fixtures.site_server import Pages, SiteServer
from tests.fixtures.thread_server import running_site
from tests.fixtures.waiting import block_until

Sites = dict[str, DemoSite]
ENTRIES = 3000


def entry(base: str, number: int) -> str:
    section = "blog" if number % 2 else "shop"
    lastmod = f"<lastmod>2026-01-{number % 28 + 1:02}</lastmod>" if number % 3 else ""
    return f"<url><loc>{base}/{section}/{number}</loc>{lastmod}</url>"


def sitemap_of(count: int, base: str = "https://a.example") -> str:
    return urlset("".join(entry(base, number) for number in range(count))).decode()


async def never_ending(request: web.BaseRequest) -> web.StreamResponse:
    """Three thousand entries, then silence."""
    answer = web.StreamResponse()
    await answer.prepare(request)
    whole = sitemap_of(ENTRIES, f"http://{request.host}")
    await answer.write(whole.partition("</urlset>")[0].encode())
    await asyncio.sleep(60)
    return answer


@pytest.fixture(scope="module")
def site() -> Iterator[SiteServer]:
    """One sitemap of six URLs under /, and one that never ends under /slow.xml."""
    pages: Pages = {
        "/robots.txt": "Sitemap: {base}/sitemap.xml\n",
        "/sitemap.xml": sitemap_of(6, "{base}"),
        "/slow.xml": never_ending,
    }
    with running_site(pages) as running:
        yield running


@pytest.fixture
def here(site: SiteServer, tmp_path: Path) -> Machine:
    """A machine without a database that may scan the site."""
    return Machine(tmp_path, {"SITEATLAS_EGRESS_ALLOW": site.host_port})


def paths(text: str, site: SiteServer) -> list[str]:
    return [line.removeprefix(site.base) for line in text.splitlines()]


def test_every_format_is_printed_as_it_is_named(here: Machine, site: SiteServer):
    names = ("table", "tree", "urls", "json", "jsonl", "csv")
    printed = {name: here.run("scan", site.base, "--format", name).stdout for name in names}
    assert printed["table"].splitlines()[1].split()[:4] == [
        f"{site.base}/sitemap.xml",
        "standard",
        "robots_txt",
        "6",
    ]
    assert printed["tree"].splitlines()[1] == f"└── {site.base}/sitemap.xml  6 URLs"
    assert len(printed["urls"].splitlines()) == 6
    assert json.loads(printed["json"])["url_count"] == 6
    assert [json.loads(line)["url"] for line in printed["jsonl"].splitlines()] == (
        printed["urls"].splitlines()
    )
    rows = list(csv.DictReader(io.StringIO(printed["csv"])))
    assert [row["url"] for row in rows] == printed["urls"].splitlines()


def test_the_output_may_go_to_a_file(here: Machine, site: SiteServer):
    result = here.run("scan", site.base, "--format", "urls", "-o", "urls.txt")
    assert (result.returncode, result.stdout) == (0, "")
    assert len((here.data_dir / "urls.txt").read_text().splitlines()) == 6
    assert "6 URLs in 1 sitemap, " in result.stderr
    assert " 6 URLs to urls.txt.\n" in result.stderr


def test_a_complete_result_without_urls_replaces_an_earlier_file(here: Machine, site: SiteServer):
    (here.data_dir / "urls.txt").write_text("earlier")
    arguments = ("--format", "urls", "--include", "blog", "-o", "urls.txt")
    result = here.run("scan", site.base, *arguments)
    assert result.returncode == 0
    assert (here.data_dir / "urls.txt").read_text() == ""
    assert "6 URLs" in result.stderr
    assert "'*blog*'" in result.stderr


def test_a_failed_scan_leaves_an_earlier_file_alone(here: Machine, sites: Sites):
    (here.data_dir / "urls.csv").write_text("earlier")
    site = sites["app"]
    arguments = ("scan", site.base_url, "--allow", site.host_port, "--format", "csv")
    result = here.run(*arguments, "-o", "urls.csv")
    assert result.returncode == 3
    assert f"siteatlas: no_sitemap: {site.base_url}: " in result.stderr
    assert "urls.csv" not in result.stderr
    assert (here.data_dir / "urls.csv").read_text() == "earlier"


def test_only_recent_urls_and_the_others_are_counted(here: Machine, site: SiteServer):
    result = here.run("scan", site.base, "--format", "urls", "--since", "2026-01-05")
    assert paths(result.stdout, site) == ["/shop/4", "/blog/5"]
    (line,) = [line for line in result.stderr.splitlines() if "lastmod" in line]
    assert re.findall(r"\d+", line) == ["4", "2"]


def test_patterns_choose_urls(here: Machine, site: SiteServer):
    arguments = ("--include", "*/blog/*", "--include", "*/0", "--exclude", "*/3")
    result = here.run("scan", site.base, "--format", "urls", *arguments)
    assert paths(result.stdout, site) == ["/shop/0", "/blog/1", "/blog/5"]


@pytest.mark.parametrize(
    ("more", "expected"), [((), "/shop/0 /blog/1"), (("--include", "*/blog/*"), "/blog/1 /blog/3")]
)
def test_a_limit_is_for_the_urls_that_are_printed(
    here: Machine, site: SiteServer, more: tuple[str, ...], expected: str
):
    result = here.run("scan", site.base, "--format", "urls", "--max-urls", "2", *more)
    assert result.returncode == 0
    assert paths(result.stdout, site) == expected.split()


def test_a_limit_holds_for_a_local_file(here: Machine):
    (here.data_dir / "sitemap.xml").write_text(sitemap_of(9))
    result = here.run("scan", "./sitemap.xml", "--format", "urls", "--max-urls", "7")
    assert len(result.stdout.splitlines()) == 7
    assert "PARTIAL: url_limit." in result.stderr


def test_the_hint_to_watch_a_site_names_what_the_scan_was_allowed(here: Machine, site: SiteServer):
    command = f"siteatlas domains add {site.host_port}"
    usual = here.run("scan", site.base).stderr
    assert usual.endswith(f": {command}\n")
    assert "SITEATLAS_EGRESS_ALLOW" not in usual
    # Where it redirects to, or the ranges of a wildcard.
    arguments = ("scan", site.base, "--allow", site.host_port, "--allow", "www.shop.lan:80")
    *_, hint, addition = here.run(*arguments, SITEATLAS_EGRESS_ALLOW="").stderr.splitlines()
    assert hint.endswith(f": SITEATLAS_EGRESS_ALLOW={site.host_port},www.shop.lan:80 {command}")
    assert "SITEATLAS_EGRESS_ALLOW" in addition


def test_headers_and_user_agent_are_sent_to_an_allowed_host(here: Machine, site: SiteServer):
    site.requests.clear()
    allow = ("--allow", site.host_port)
    header = ("--header", "Authorization: Bearer x", "--header", "X-Who: me")
    result = here.run("scan", site.base, *allow, *header, "--user-agent", "Tester/1")
    assert result.returncode == 0
    seen = {
        (r.headers["Authorization"], r.headers["X-Who"], r.headers["User-Agent"])
        for r in site.requests
    }
    assert seen == {("Bearer x", "me", "Tester/1")}
    assert "Bearer" not in result.stderr


def test_headers_without_a_host_of_ones_own_are_refused(here: Machine):
    result = here.run(
        "scan", "example.com", "--header", "Authorization: x", SITEATLAS_EGRESS_ALLOW=""
    )
    assert result.returncode == 2
    assert "--allow" in result.stderr


@pytest.mark.full
def test_a_rate_holds_for_a_host_of_ones_own(here: Machine, site: SiteServer):
    started = time.monotonic()
    assert here.run("scan", site.base, "--rate", "1").returncode == 0
    assert time.monotonic() - started >= 1


def test_a_full_probe_looks_in_the_usual_places(here: Machine, site: SiteServer):
    found = here.json("scan", site.base, "--probe", "full")
    assert found["url_count"] == 6
    assert any(candidate["method"] == "common_path" for candidate in found["candidates"])


def test_a_list_of_sites_is_one_stream_and_ends_with_the_worst_code(here: Machine, sites: Sites):
    good, bad = sites["papers"], sites["app"]
    allowed = f"{good.host_port},{bad.host_port}"
    text = f"# ours\n{good.base_url}\n\n{good.base_url}  # again\n{bad.base_url}\nhttp://[\n"
    result = subprocess.run(
        [COMMAND, "scan", "-", "--format", "urls"],
        input=text,
        env=here.environment | {"SITEATLAS_EGRESS_ALLOW": allowed},
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert result.returncode == 3
    assert len(result.stdout.splitlines()) == good.expected_urls
    assert "siteatlas: address_invalid: http://[: " in result.stderr
    assert f"siteatlas: no_sitemap: {bad.host_port}: " in result.stderr


def test_a_list_as_json_has_the_shape_of_the_api(here: Machine, sites: Sites):
    site = sites["papers"]
    result = subprocess.run(
        [COMMAND, "scan", "-", "--json"],
        input=site.base_url,
        env=here.environment | {"SITEATLAS_EGRESS_ALLOW": site.host_port},
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    answer = json.loads(result.stdout)
    assert [one["url_count"] for one in answer["items"]] == [site.expected_urls]
    assert answer["next_cursor"] is None


@pytest.mark.full
def test_a_local_file_is_read(here: Machine):
    text = sitemap_of(4)
    (here.data_dir / "sitemap.xml.gz").write_bytes(gzip.compress(text.encode()))
    result = here.run("scan", "./sitemap.xml.gz", "--format", "urls")
    assert len(result.stdout.splitlines()) == 4
    (here.data_dir / "export.old").write_text(text)
    for name in ("sitemap.xml.gz", "export.old"):
        assert here.run("scan", name, "--format", "urls").stdout == result.stdout


@pytest.mark.full
def test_a_local_index_lists_its_children_and_fetches_nothing(here: Machine, site: SiteServer):
    site.requests.clear()
    (here.data_dir / "index.xml").write_bytes(index_of([f"{site.base}/sitemap.xml"]))
    result = here.run("scan", "./index.xml", "--format", "urls")
    assert result.stdout == ""
    assert "index.xml: 0 URLs in 1 sitemap" in result.stderr
    assert f"siteatlas scan --only {site.base}/sitemap.xml" in result.stderr
    table = here.run("scan", "./index.xml").stdout.splitlines()
    assert table[2].split() == [
        f"{site.base}/sitemap.xml",
        *["-", "sitemap_index", "-", "skipped"],
        "not_fetched",
    ]
    assert (
        f"└── {site.base}/sitemap.xml  not fetched"
        in here.run("scan", "./index.xml", "--format", "tree").stdout
    )
    assert site.requests == []


def start(here: Machine, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [COMMAND, "scan", *arguments],
        env=here.environment,
        cwd=here.data_dir,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_document_that_broke_off_is_named_on_stderr(here: Machine, sites: Sites):
    site = sites["rooms"]
    result = here.run("scan", site.base_url, "--allow", site.host_port, "--format", "urls")
    assert result.returncode == 0
    assert len(result.stdout.splitlines()) == site.expected_urls
    assert ": cut" in result.stderr


@pytest.mark.full
@pytest.mark.parametrize("format", ["jsonl", "urls", "csv"])
def test_a_reader_that_has_enough_ends_the_scan_quietly(
    here: Machine, site: SiteServer, format: str
):
    scan = start(here, f"{site.base}/slow.xml", "--format", format)
    assert scan.stdout is not None
    assert scan.stderr is not None
    assert scan.stdout.readline()
    scan.stdout.close()
    scan.send_signal(signal.SIGINT)
    assert scan.wait(20) in {0, 130}
    words = scan.stderr.read().decode()
    scan.stderr.close()
    assert "rror" not in words
    assert "Traceback" not in words


def test_head_takes_what_it_wants(here: Machine, tmp_path: Path):
    (tmp_path / "sitemap.xml").write_text(sitemap_of(9000))
    command = f"{COMMAND} scan ./sitemap.xml --format jsonl | head -n 2"
    result = here.execute(["bash", "-o", "pipefail", "-c", command])
    assert result.returncode == 0
    assert len(result.stdout.splitlines()) == 2
    assert "rror" not in result.stderr


def interrupted(here: Machine, site: SiteServer, *arguments: str) -> tuple[str, str]:
    """Interrupt a scan that waits for a silent site; gives stdout and stderr."""
    site.requests.clear()
    scan = start(here, f"{site.base}/slow.xml", *arguments)
    block_until(lambda: "/slow.xml" in site.paths)
    time.sleep(0.5)
    scan.send_signal(signal.SIGINT)
    output, words = scan.communicate(timeout=20)
    assert scan.returncode == 130
    assert "incomplete" in words.decode()
    return output.decode(), words.decode()


def test_an_interrupt_leaves_whole_lines(here: Machine, site: SiteServer):
    output, _ = interrupted(here, site, "--format", "jsonl")
    lines = [json.loads(line)["url"] for line in output.splitlines()]
    assert lines[-1].startswith(site.base)
    assert output.endswith("\n")


def test_an_interrupt_leaves_a_valid_report(here: Machine, site: SiteServer):
    output, _ = interrupted(here, site, "--json")
    found = json.loads(output)
    assert found["status"] == "cancelled"
    slow = found["sitemaps"][-1]
    assert (slow["outcome"], slow["error_code"]) == ("cut", "cancelled")
    assert slow["url_count"] > 0
    assert found["url_count"] == sum(sitemap["url_count"] for sitemap in found["sitemaps"])


def test_an_interrupt_leaves_a_file_with_what_was_found(here: Machine, site: SiteServer):
    interrupted(here, site, "--format", "csv", "-o", "urls.csv")
    rows = list(csv.DictReader((here.data_dir / "urls.csv").read_text().splitlines()))
    assert rows
    assert [path.name for path in here.data_dir.iterdir()] == ["urls.csv"]


def test_a_second_interrupt_leaves_at_once_and_gives_the_terminal_back(here: Machine):
    """The reader of the output stalls, so that the first interrupt cannot end the scan."""
    (here.data_dir / "sitemap.xml").write_text(sitemap_of(30000))
    stalled, output = socket.socketpair()
    master, slave = pty.openpty()
    scan = subprocess.Popen(
        [COMMAND, "scan", "./sitemap.xml", "--format", "urls"],
        env=here.environment | {"TERM": "xterm-256color"},
        cwd=here.data_dir,
        stdout=output.fileno(),
        stderr=slave,
    )
    os.close(slave)
    output.close()
    words = read_words(master, until=b" document")
    scan.send_signal(signal.SIGINT)
    words += read_words(master, until=b"Ctrl-C")
    scan.send_signal(signal.SIGINT)
    assert scan.wait(5) == 130
    words += read_words(master, until=None)
    os.close(master)
    stalled.close()
    assert words.rfind(b"\x1b[?25h") > words.rfind(b"\x1b[?25l") >= 0
    assert words.endswith(b"\n")
    assert b"xception" not in words


def read_words(terminal: int, until: bytes | None) -> bytes:
    """What a terminal shows until these words are there, or to its end."""
    words = b""
    while until is None or until not in words:
        try:
            words += os.read(terminal, 65536)
        except OSError:
            return words
    return words


def test_a_scan_needs_neither_database_nor_web_framework():
    program = (
        "import sys, siteatlas.cli.commands.scan; print(*{m.split('.')[0] for m in sys.modules})"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    heavy = {"sqlalchemy", "alembic", "asyncpg", "fastapi", "starlette", "uvicorn", "apscheduler"}
    heavy.add("prometheus_client")
    assert not heavy & set(loaded.stdout.split())


def test_a_refused_redirect_is_one_message_without_log_lines(machine: Machine):
    with running_site({}) as inside, running_site({}) as site:
        headers = {"Location": f"{inside.base}/robots.txt"}
        site.otherwise = lambda _: web.Response(status=302, headers=headers)
        result = machine.run("scan", site.base, "--allow", site.host_port)
    refused, advice = result.stderr.splitlines()[-2:]
    assert refused.startswith(f"siteatlas: egress_denied: {site.base}: ")
    assert f"{inside.host_port}: it is not a public address." in refused
    assert advice.endswith(f"--allow {inside.host_port}")
    assert "[warning" not in result.stderr
