"""The test sequences of the integration documents as they are typed: HTTP submit, then programs."""

from __future__ import annotations

import ast
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, Queue

import pytest

from siteatlas.demo.server import DemoSite
from siteatlas.storage.models import LOCAL_USER_ID
from tests.fixtures.commands import TIMEOUT_SECONDS, Machine
from tests.fixtures.scripts import Scripts, value_of

pytestmark = pytest.mark.timeout(180)  # many programs, each with its own start

Sites = dict[str, DemoSite]
SCAN = "/api/v3/sitemap/scan"
DEBUG, TRIGGER, CHECK_JOB, MONITOR = (
    f"sitemap_scheduler/{name}.py"
    for name in ("debug_pending_jobs", "trigger_scheduler", "check_job", "monitor_scheduler")
)
SHOP = {
    "/sitemap.xml": ("index", "robots_txt", 0),
    "/sitemaps/products-index.xml": ("index", "sitemap_index", 0),
    "/sitemaps/categories.xml.gz": ("standard", "sitemap_index", 180),
    "/sitemaps/pages.xml.gz": ("standard", "sitemap_index", 20),
} | {f"/sitemaps/products-{part}.xml.gz": ("standard", "sitemap_index", 250) for part in range(4)}


@pytest.fixture
def scripts(machine: Machine, project: Path) -> Scripts:
    return Scripts(machine, project / "scripts")


def submit(machine: Machine, site: DemoSite, max_pages: int = 100) -> dict[str, str]:
    """POST to a service that runs no jobs itself; the job still waits when it has gone."""
    with machine.service("--no-scheduler") as service:
        body = {"base_url": site.base_url, "max_pages": max_pages}
        submitted: dict[str, str] = service.request_json(SCAN, body)
        assert service.request_json(submitted["status_url"])["status"] == "pending"
        return submitted


def records(lines: list[str]) -> list[dict[str, str]]:
    """The sitemaps of `check_domain_sitemaps.py`, each with its labels."""
    found: list[dict[str, str]] = []
    for line in lines[1:]:
        if line.startswith("- "):
            found.append({})
        label, value = line[2:].split(": ", 1)
        found[-1][label] = value
    return found


@pytest.mark.criterion("script-add-check-process", "submit-then-list", "submit-process-check")
@pytest.mark.full
def test_a_submit_by_http_is_listed_processed_and_shown_with_its_values(
    scripts: Scripts, machine: Machine, sites: Sites
):
    site, began = sites["shop"], datetime.now(UTC)
    submitted = submit(machine, site)

    waiting = scripts.lines(DEBUG)
    number = value_of("ID", waiting)
    assert waiting == [
        "Found 1 pending sitemap jobs",
        f"ID: {int(number)}",
        f"UUID: {submitted['job_id']}",
        "Status: pending",
        f"Result Data: {{'domain': '{site.host_port}', 'max_pages': 100}}",
        f"Domain found: {site.host_port}",
    ]

    triggered = scripts.lines(TRIGGER)
    assert triggered[0] == "Found 1 pending sitemap jobs"
    assert f"Job {submitted['job_id']}: completed" in triggered

    *head, data = scripts.lines(CHECK_JOB, "--id", number)
    assert head == [
        f"Job ID: {number}",
        f"Job UUID: {submitted['job_id']}",
        "Job Type: sitemap",
        "Status: completed",
    ]
    result = ast.literal_eval(data.removeprefix("Result Data: "))
    assert (result["domain"], result["max_pages"]) == (site.host_port, 100)
    assert (result["url_count"], result["reasons"]) == (100, ["url_limit"])

    shown = records(scripts.lines("check_domain_sitemaps.py", site.host_port))
    assert {one["Status"] for one in shown} <= {"completed", "pending"}
    assert {one["Created by"] for one in shown} == {str(LOCAL_USER_ID)}
    for one in shown:
        assert began <= datetime.fromisoformat(one["Created at"]) <= datetime.now(UTC)
    limit = "url_limit: The scan reached its maximum number of URLs."
    assert {one["Limited"] for one in shown if "Limited" in one} == {limit}
    assert all("Limited" in one for one in shown if one["Status"] == "pending")


@pytest.mark.criterion("content-stored", "submit-process-check")
@pytest.mark.full
def test_a_submit_with_room_for_the_whole_site_stores_all_of_it(
    scripts: Scripts, machine: Machine, sites: Sites
):
    site = sites["shop"]
    submitted = submit(machine, site, max_pages=5000)
    scripts.run(TRIGGER)
    *_, data = scripts.lines(CHECK_JOB, "--latest")
    result = ast.literal_eval(data.removeprefix("Result Data: "))
    assert (result["url_count"], result["sitemap_count"], result["reasons"]) == (1200, 8, [])
    assert {
        one["url"].removeprefix(site.base_url): (one["type"], one["url_count"])
        for one in result["sitemaps"]
    } == {path: (kind, urls) for path, (kind, _, urls) in SHOP.items()}

    listed = scripts.lines("check_domain_sitemaps.py", site.host_port)
    assert listed[0] == f"Found 8 sitemaps for domain {site.host_port}:"
    shown = records(listed)
    assert {
        one["URL"].removeprefix(site.base_url): (one["Type"], one["Discovery"]) for one in shown
    } == {path: (kind, found) for path, (kind, found, _) in SHOP.items()}
    assert {one["ID"] for one in shown} == {one["id"] for one in result["sitemaps"]}
    assert {one["Status"] for one in shown} == {"completed"}
    assert {one["Job ID"] for one in shown} == {submitted["job_id"]}
    assert {one["Created by"] for one in shown} == {str(LOCAL_USER_ID)}


@pytest.mark.full
@pytest.mark.criterion("submit-process-check")
def test_a_failed_job_is_shown_with_its_error(scripts: Scripts, machine: Machine, sites: Sites):
    submitted = submit(machine, sites["card"])
    number = value_of("ID", scripts.lines(DEBUG))
    scripts.run(TRIGGER)
    shown = scripts.lines(CHECK_JOB, "--id", number)
    assert value_of("Job UUID", shown) == submitted["job_id"]
    assert value_of("Status", shown) == "failed"
    assert value_of("Error", shown).startswith("no_sitemap: ")


@contextmanager
def lines_of(machine: Machine, command: list[str]) -> Iterator[Queue[str]]:
    """The lines that a program prints while it runs; it is ended with the block."""
    lines: Queue[str] = Queue()
    with subprocess.Popen(
        command, env=machine.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        stdout = program.stdout

        def read() -> None:
            for line in stdout:
                lines.put(line)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield lines
        finally:
            program.terminate()
            program.wait(TIMEOUT_SECONDS)
            reader.join(TIMEOUT_SECONDS)


def count_of(lines: Queue[str], status: str) -> int:
    """The next number that the monitor shows for this status."""
    while True:
        try:
            line = lines.get(timeout=TIMEOUT_SECONDS)
        except Empty:
            pytest.fail("the monitor fell silent")
        if found := re.match(rf"jobs {status} +(\d+)$", line):
            return int(found[1])


@pytest.mark.full
@pytest.mark.criterion("script-monitor")
def test_the_monitor_sees_a_submitted_job_become_completed(
    scripts: Scripts, machine: Machine, sites: Sites
):
    site = sites["papers"]
    with (
        lines_of(machine, scripts.command(MONITOR, "--interval", "0.3")) as lines,
        machine.service() as service,
    ):
        before = count_of(lines, "completed")
        submitted = service.request_json(SCAN, {"base_url": site.base_url, "max_pages": 100})
        assert service.wait_for(submitted["status_url"])["status"] == "completed"
        later = (count_of(lines, "completed") for _ in range(50))
        assert next(count for count in later if count != before) == before + 1
