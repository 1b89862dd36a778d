"""The command line as people use it: real processes, a real database, sites on loopback."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from functools import partial

import pytest

from siteatlas.demo.server import DemoSite
from tests.fixtures.commands import Machine, Service
from tests.fixtures.waiting import block_until

Sites = dict[str, DemoSite]


@pytest.fixture(scope="module")
def service(machine: Machine) -> Iterator[Service]:
    with machine.service() as running:
        yield running


@pytest.fixture(scope="module")
def scanned(service: Service, sites: Sites) -> DemoSite:
    job = service.scan(sites["shop"])
    assert job["status"] == "completed"
    return sites["shop"]


@pytest.mark.criterion("content-stored", "http-to-completion")
def test_a_submitted_site_is_scanned_and_stored(service: Service, scanned: DemoSite):
    domain = service.request_json(f"/api/v3/domains/{scanned.host_port}")
    assert domain["url_count"] == scanned.expected_urls
    assert domain["sitemap_count"] == scanned.expected_sitemaps


@pytest.mark.criterion("errors-handled")
def test_a_site_without_sitemaps_fails_with_the_reason(service: Service, sites: Sites):
    job = service.scan(sites["card"])
    assert (job["status"], job["error_code"]) == ("failed", "no_sitemap")


def test_the_stored_urls_are_printed_one_a_line(machine: Machine, scanned: DemoSite):
    result = machine.run("urls", scanned.host_port, "--all", "--format", "urls")
    assert result.returncode == 0
    urls = result.stdout.splitlines()
    assert len(set(urls)) == scanned.expected_urls
    assert all(url.startswith(scanned.base_url) for url in urls)


def test_lists_have_the_shape_of_the_api(machine: Machine, service: Service, scanned: DemoSite):
    printed = machine.json("sitemaps", scanned.host_port)
    answered = service.request_json(f"/api/v3/domains/{scanned.host_port}/sitemaps")
    assert set(printed) >= {"items", "next_cursor"}
    assert {item["id"] for item in printed["items"]} == {item["id"] for item in answered["items"]}
    assert set(answered["items"][0]) <= set(printed["items"][0])


def test_a_plain_table_is_readable_and_has_no_escapes(machine: Machine, scanned: DemoSite):
    result = machine.run("domains", "list")
    head, *rows = result.stdout.splitlines()
    assert head.split()[:3] == ["DOMAIN", "WATCHED", "URLS"]
    assert any(row.startswith(scanned.host_port) for row in rows)
    assert "\x1b" not in result.stdout + result.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    "command",
    [
        "sitemaps {site} --type atom",
        "sitemaps {site} --status error",
        "urls {site} --contains nowhere",
        "problems {site} --code scope",
        "domains list --watched",
        "jobs list --status cancelled",
    ],
)
def test_a_filter_that_nothing_matches_is_not_an_empty_store(
    command: str, machine: Machine, scanned: DemoSite
):
    result = machine.run(*command.format(site=scanned.host_port).split())
    assert (result.returncode, result.stdout) == (0, "")
    (line,) = result.stderr.splitlines()
    assert line.endswith(" matches.")


def test_a_filter_accepts_the_words_of_the_api(machine: Machine, scanned: DemoSite):
    result = machine.json("sitemaps", scanned.host_port, "--status", "complete", "--type", "INDEX")
    assert {(item["status"], item["type"]) for item in result["items"]} == {("completed", "index")}


def test_a_filtered_list_goes_on_with_a_cursor_of_the_api(
    machine: Machine, service: Service, scanned: DemoSite
):
    wanted = f"/api/v3/domains/{scanned.host_port}/sitemaps?status=completed&type=standard&limit=1"
    begun = service.request_json(wanted)
    filters = ("--status", "completed", "--type", "standard")
    rest = machine.json("sitemaps", scanned.host_port, *filters, "--cursor", begun["next_cursor"])
    whole = machine.json("sitemaps", scanned.host_port, *filters)
    ids = [item["id"] for item in begun["items"] + rest["items"]]
    assert ids == [item["id"] for item in whole["items"]]


def test_watching_an_ended_job_gives_its_end_as_exit_code(machine: Machine, scanned: DemoSite):
    job = machine.json("jobs", "list", "--domain", scanned.base_url)["items"][0]
    result = machine.run("jobs", "watch", str(job["id"]), "--json")
    assert result.returncode == 0
    assert json.loads(result.stdout)["status"] == "completed"


@pytest.mark.full
def test_only_a_site_that_was_never_scanned_gets_a_first_scan(fresh_machine: Machine, sites: Sites):
    address = sites["papers"].host_port
    with fresh_machine.service("--no-scheduler"):
        first = fresh_machine.run("domains", "add", address).stderr
        assert re.search(
            rf" {address} every 24 h; .*\bfirst scan\b.* job \d+\.$", first, re.MULTILINE
        )
        fresh_machine.json("scheduler", "run-once")
        second = fresh_machine.run("domains", "add", address).stderr
        assert re.search(rf" {address} every 24 h; .* job \d+\.$", second, re.MULTILINE)
        assert "first" not in second


def test_several_sites_are_added_at_once_and_the_bad_ones_named(
    fresh_machine: Machine, sites: Sites
):
    good = [sites["papers"].host_port, sites["blog"].host_port]
    result = fresh_machine.run("domains", "add", good[0], "ftp://c.example", good[1])
    assert result.returncode == 1
    assert "address_scheme: ftp://c.example" in result.stderr
    assert "siteatlas serve" in result.stderr
    known = fresh_machine.json("domains", "list")["items"]
    assert {domain["domain"] for domain in known} == set(good)


@pytest.mark.full
def test_watching_a_job_that_nobody_works_on_says_so_and_gives_up_in_time(
    fresh_machine: Machine, sites: Sites
):
    fresh_machine.run("domains", "add", sites["papers"].host_port)
    result = fresh_machine.run("jobs", "watch", "--timeout", "1")
    assert result.returncode == 1
    assert "siteatlas serve" in result.stderr
    assert "siteatlas jobs watch 1" in result.stderr
    assert "pending" in result.stdout


@pytest.mark.full
def test_a_partial_job_fails_a_watch_that_asks_for_all(
    machine: Machine, service: Service, sites: Sites
):
    job = service.scan(sites["rooms"])
    number = str(job["id"])
    lenient = machine.run("jobs", "watch", number)
    strict = machine.run("jobs", "watch", number, "--fail-on", "partial")
    assert (lenient.returncode, strict.returncode) == (0, 1)
    shown = machine.run("jobs", "show", number).stdout
    assert "partial: truncated" in shown
    assert re.search(rf"^truncated +truncated  {sites['rooms'].base_url}/\S+$", shown, re.MULTILINE)
    assert f"siteatlas sitemaps {sites['rooms'].host_port}" in lenient.stdout


@pytest.mark.full
@pytest.mark.parametrize("command", ["domains list", "jobs list", "sitemaps {site}", "urls {site}"])
def test_every_stored_list_can_be_csv(command: str, machine: Machine, scanned: DemoSite):
    words = command.format(site=scanned.host_port).split()
    printed = machine.run(*words, "--format", "csv").stdout
    rows = list(csv.DictReader(printed.splitlines()))
    items = machine.json(*words)["items"]
    assert len(rows) == len(items)
    assert set(rows[0]) == set(items[0])


@pytest.mark.full
@pytest.mark.criterion("submit-does-no-work", "discovery")
def test_without_a_scheduler_a_job_waits_until_one_runs(fresh_machine: Machine, sites: Sites):
    with fresh_machine.service("--no-scheduler") as idle:
        submitted = idle.request_json(
            "/api/v3/sitemap/scan", {"base_url": sites["papers"].base_url}
        )
        state = fresh_machine.json("scheduler", "status")
        assert state["jobs"]["pending"] == 1
        assert state["workers"] == []
        report = fresh_machine.json("scheduler", "run-once")
        assert report["outcomes"] == {submitted["job_id"]: "completed"}
        assert idle.request_json(submitted["status_url"])["status"] == "completed"


def test_one_run_over_the_queue_ends_with_1_when_a_job_failed(fresh_machine: Machine, sites: Sites):
    with fresh_machine.service("--no-scheduler") as idle:
        submitted = idle.request_json("/api/v3/sitemap/scan", {"base_url": sites["card"].base_url})
        result = fresh_machine.run("scheduler", "run-once", "--json")
        assert result.returncode == 1
        assert json.loads(result.stdout)["outcomes"] == {submitted["job_id"]: "failed"}


def test_sigterm_ends_the_service_with_0_and_leaves_no_database(fresh_machine: Machine):
    with fresh_machine.service() as running:
        assert fresh_machine.postgres_processes()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(20) == 0
    assert fresh_machine.postgres_processes() == []


@pytest.mark.criterion("queue-is-the-medium", "pending-detected")
def test_several_workers_share_the_queue_and_stop_together(fresh_machine: Machine, sites: Sites):
    with (
        fresh_machine.service("--no-scheduler") as idle,
        fresh_machine.process("worker", "--processes", "2") as workers,
    ):
        assert idle.scan(sites["blog"])["status"] == "completed"
        workers.send_signal(signal.SIGTERM)
        assert workers.wait(25) == 0


def test_a_worker_goes_behind_the_api_but_the_server_it_starts_does_not(fresh_machine: Machine):
    with fresh_machine.process("worker") as worker:
        priority_of = partial(os.getpriority, os.PRIO_PROCESS)
        own = priority_of(os.getpid())
        block_until(lambda: priority_of(worker.pid) > own)
        block_until(lambda: bool(fresh_machine.postgres_processes()))
        assert {priority_of(pid) for pid in fresh_machine.postgres_processes()} == {own}
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(25) == 0


def test_scan_prints_one_object_a_url(fresh_machine: Machine, sites: Sites):
    result = fresh_machine.run("scan", sites["magazine"].base_url, "--format", "jsonl")
    assert result.returncode == 0
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(lines) == sites["magazine"].expected_urls
    fields = {"url", "lastmod", "lastmod_text", "changefreq", "priority", "sitemap", "extras"}
    assert all(set(line) == fields for line in lines)
    assert not any(fresh_machine.data_dir.iterdir())


def test_scan_prints_one_object_for_the_site(fresh_machine: Machine, sites: Sites):
    found = fresh_machine.json("scan", sites["shop"].base_url)
    assert (found["status"], found["url_count"]) == ("completed", sites["shop"].expected_urls)
    assert len(found["sitemaps"]) == sites["shop"].expected_sitemaps


def test_a_scan_that_finds_nothing_ends_with_3_and_says_why(fresh_machine: Machine, sites: Sites):
    result = fresh_machine.run("scan", sites["app"].base_url, "--json")
    assert result.returncode == 3
    assert json.loads(result.stdout)["error_code"] == "no_sitemap"
    assert result.stderr.startswith("siteatlas: no_sitemap: ")


def test_an_address_allowed_for_one_scan_is_echoed(fresh_machine: Machine, sites: Sites):
    site = sites["papers"]
    result = fresh_machine.run(
        "scan",
        site.base_url,
        "--allow",
        site.host_port,
        "--format",
        "urls",
        SITEATLAS_EGRESS_ALLOW="",
    )
    assert result.returncode == 0
    assert result.stderr.splitlines()[0].endswith(f": {site.host_port}")
    assert len(result.stdout.splitlines()) == site.expected_urls


def test_an_interrupted_scan_ends_with_130_and_what_it_has(fresh_machine: Machine):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        arguments = ("scan", f"http://{address}", "--allow", address, "--json")
        with fresh_machine.process(*arguments) as scan:
            silent.settimeout(20)
            connection, _ = silent.accept()
            with connection:
                scan.send_signal(signal.SIGINT)
                output, _ = scan.communicate(timeout=20)
            assert scan.returncode == 130
    assert json.loads(output)["status"] == "cancelled"
