"""The command sequences of the first documents, through the programs in `scripts/`."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from siteatlas.demo.server import DemoSite
from tests.fixtures.commands import Machine
from tests.fixtures.scripts import Scripts, value_of

Sites = dict[str, DemoSite]


@pytest.fixture
def scripts(machine: Machine, project: Path) -> Scripts:
    return Scripts(machine, project / "scripts")


@pytest.mark.criterion("completed-status", "discovery", "log-sentences", "script-add-check-process")
def test_a_site_goes_from_pending_to_completed(scripts: Scripts, sites: Sites):
    site = sites["papers"]
    added = scripts.lines("sitemap_scheduler/add_test_sitemap.py", "--domain", site.base_url)
    assert value_of("Status", added) == "pending"

    waiting = scripts.lines("sitemap_scheduler/debug_pending_jobs.py")
    assert waiting == [
        "Found 1 pending sitemap jobs",
        f"ID: {value_of('Job ID', added)}",
        f"UUID: {value_of('Job UUID', added)}",
        "Status: pending",
        f"Result Data: {{'domain': '{site.host_port}', 'max_pages': None}}",
        f"Domain found: {site.host_port}",
    ]

    scripts.lines("sitemap_scheduler/process_sitemap.py", "--trigger-scheduler")
    checked = scripts.lines("sitemap_scheduler/check_sitemap.py", "--domain", site.base_url)
    assert value_of("Status", checked) == "completed"
    assert value_of("URLs", checked) == str(site.expected_urls)


@pytest.mark.full
@pytest.mark.criterion("script-add-check-process", "script-reset")
def test_one_sitemap_is_found_reset_and_scanned_alone(scripts: Scripts, sites: Sites):
    site = sites["magazine"]
    scripts.lines("sitemap_scheduler/add_test_sitemap.py", "--domain", site.base_url)
    triggered = scripts.lines("sitemap_scheduler/trigger_scheduler.py")
    assert triggered[0] == "Found 1 pending sitemap jobs"
    first_job = scripts.lines("sitemap_scheduler/check_job.py", "--latest")
    assert [line.partition(":")[0] for line in first_job] == [
        "Job ID",
        "Job UUID",
        "Job Type",
        "Status",
        "Result Data",
    ]

    listed = scripts.lines("check_domain_sitemaps.py", site.base_url)
    assert listed[0] == f"Found {site.expected_sitemaps} sitemaps for domain {site.host_port}:"
    assert [line.partition(":")[0] for line in listed[1:9]] == [
        "- ID",
        "  URL",
        "  Type",
        "  Discovery",
        "  Status",
        "  Job ID",
        "  Created by",
        "  Created at",
    ]
    assert value_of("Job ID", listed) == value_of("Job UUID", first_job)

    ident = value_of("ID", listed)
    reset = scripts.lines(
        "sitemap_scheduler/reset_sitemap_status.py", "--sitemap-id", ident, "--status", "pending"
    )
    assert value_of("Status", reset) == "pending"
    alone = scripts.lines("sitemap_scheduler/process_sitemap.py", "--sitemap-id", ident)
    assert value_of("Status", alone) == "completed"
    listed_again = scripts.lines("check_domain_sitemaps.py", site.base_url)
    jobs = [line.partition(": ")[2] for line in listed_again if line.startswith("  Job ID")]
    assert jobs.count(value_of("Job UUID", alone)) == 1


@pytest.mark.full
@pytest.mark.criterion("script-add-check-process", "script-reset", "script-monitor")
def test_the_job_of_a_site_is_set_back_and_the_monitor_sees_it(scripts: Scripts, sites: Sites):
    site = sites["card"]
    scripts.lines("sitemap_scheduler/add_test_sitemap.py", "--domain", site.base_url)
    triggered = scripts.run("sitemap_scheduler/trigger_scheduler.py")
    job = scripts.lines("sitemap_scheduler/check_job.py", "--latest")
    assert value_of("Status", job) == "failed"
    assert triggered.returncode == 1
    uuid, reason = value_of("Job UUID", job), value_of("Error", job)
    assert reason.startswith("no_sitemap: ")
    assert triggered.stdout.splitlines()[2:] == [f"Job {uuid}: failed", f"Error: {reason}"]
    scripts.lines(
        "sitemap_scheduler/reset_sitemap_status.py",
        "--domain",
        site.base_url,
        "--status",
        "pending",
    )
    monitor = scripts.lines("sitemap_scheduler/monitor_scheduler.py", "--once")
    assert re.fullmatch(r"--- 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC ---", monitor[0])
    assert "jobs pending     1" in monitor
    reset = scripts.lines("sitemap_scheduler/check_sitemap.py", "--domain", site.base_url)
    assert [line for line in reset if line.startswith("Error")] == []


@pytest.mark.full
@pytest.mark.criterion("script-reset")
def test_a_site_is_added_anew_after_its_waiting_job_was_cancelled(scripts: Scripts, sites: Sites):
    arguments = ("sitemap_scheduler/add_test_sitemap.py", "--domain", sites["papers"].base_url)
    first = scripts.lines(*arguments)
    second = scripts.lines(*arguments, "--reset")
    assert second[0] == f"Added job for domain {sites['papers'].host_port}"
    assert value_of("Job ID", second) != value_of("Job ID", first)
    replaced = scripts.lines("sitemap_scheduler/check_job.py", "--id", value_of("Job ID", first))
    assert value_of("Status", replaced) == "cancelled"


def test_programs_refuse_unclear_arguments(scripts: Scripts):
    result = scripts.run("sitemap_scheduler/check_job.py")
    assert result.returncode == 2
    assert re.fullmatch(r"siteatlas: input_invalid: .*--id\b.*--latest\b.*\n", result.stderr)


def test_without_its_environment_a_program_says_what_to_do(project: Path):
    interpreter = Path(sysconfig.get_config_var("BINDIR")) / "python3"
    for program in ("sitemap_scheduler/check_job.py", "check_domain_sitemaps.py"):
        path = project / "scripts" / program
        command = [str(interpreter), "-S", path.name, "example.com"]
        result = subprocess.run(
            command, cwd=path.parent, capture_output=True, text=True, check=False
        )
        assert result.returncode == 2
        assert ".venv/bin/python" in result.stderr
        assert "`make run`" in result.stderr
        assert "Traceback" not in result.stderr


@pytest.mark.full
def test_a_look_at_a_site_opens_the_database_once(fresh_machine: Machine, project: Path):
    scripts = Scripts(fresh_machine, project / "scripts")
    site = fresh_machine.environment["SITEATLAS_EGRESS_ALLOW"].split(",")[0]
    scripts.lines("sitemap_scheduler/add_test_sitemap.py", "--domain", site)
    looked = scripts.run("sitemap_scheduler/check_sitemap.py", "--domain", site)
    assert looked.stderr.count("PostgreSQL") == 1
    assert "Status: pending" in looked.stdout.splitlines()
