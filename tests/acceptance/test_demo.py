"""The commands that the demo suggests: each of them works exactly as printed."""

from __future__ import annotations

import json
import shutil
from datetime import datetime, timedelta
from subprocess import Popen

import pytest

from tests.fixtures.commands import Machine, Service
from tests.fixtures.waiting import block_until

# It makes a database and scans ten sites, some of them two dozen times.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def words_of(demo: Popen[str]) -> list[str]:
    """The lines that the demo says until it has nothing more to say."""
    assert demo.stderr is not None
    lines = []
    for line in demo.stderr:
        lines.append(line.rstrip("\n"))
        if line.startswith("Ctrl-C"):
            return lines
    pytest.fail("\n".join(lines))


def commands_of(lines: list[str]) -> list[str]:
    """The indented commands, each with its continued lines."""
    text = "\n".join(line for line in lines if line.startswith("  ")).replace("\\\n", " ")
    return [command.strip() for command in text.splitlines()]


@pytest.mark.full
def test_every_command_that_the_demo_prints_works(fresh_machine: Machine):
    with fresh_machine.process("demo") as demo:
        scan, post, urls, _follow = commands_of(words_of(demo))
        scanned = fresh_machine.execute(["sh", "-c", scan])
        assert (scanned.returncode, "1,200 URLs" in scanned.stderr) == (0, True), scanned.stderr
        stored = fresh_machine.execute(["sh", "-c", urls])
        assert (stored.returncode, len(stored.stdout.splitlines())) == (0, 11), stored.stderr
        if shutil.which("curl"):
            accepted = fresh_machine.execute(["sh", "-c", post])
            assert '"status":"pending"' in accepted.stdout


@pytest.mark.full
def test_a_changing_site_gives_the_follower_something_to_print(fresh_machine: Machine):
    with fresh_machine.process("demo") as demo:
        *_, follow = commands_of(words_of(demo))
        assert follow.endswith("changes --follow")
        command = ["timeout", "25", "sh", "-c", f"exec env {follow} --format jsonl"]
        printed = fresh_machine.execute(command).stdout
    kinds = {json.loads(line)["kind"] for line in printed.splitlines()}
    assert "added" in kinds


@pytest.mark.full
def test_the_demo_opens_onto_a_dashboard_with_something_to_show(fresh_machine: Machine):
    with fresh_machine.process("demo") as demo:
        lines = words_of(demo)
        address = address_of(lines)
        service = Service(demo, address)
        changes = service.request_json("/api/v3/changes?limit=1000")["items"]
        sites = service.request_json("/api/v3/domains")["items"]
        block_until(lambda: running_jobs(service) != [], seconds=10)
    assert len(sites) == 10
    assert {"added", "removed", "moved", "changed"} <= {change["kind"] for change in changes}
    assert len({change["seq"] for change in changes}) > 10
    days = {datetime.fromisoformat(change["not_after"]).date() for change in changes}
    assert len(days) >= 15
    assert max(days) - min(days) >= timedelta(days=50)


@pytest.mark.full
def test_the_demo_ends_as_its_stories_say_and_remembers(fresh_machine: Machine):
    first = fresh_machine.run("demo", "--exit")
    assert first.returncode == 0, first.stderr
    assert "7 sites" not in first.stderr
    second = fresh_machine.run("demo", "--exit")
    assert second.returncode == 0
    assert "7 sites" in second.stderr


@pytest.mark.full
def test_a_second_demo_has_sites_and_data_of_its_own(fresh_machine: Machine):
    with fresh_machine.process("demo", "--no-changing") as demo:
        service = Service(demo, address_of(words_of(demo)))
        second = fresh_machine.run("demo", "--exit")
        sites = service.request_json("/api/v3/domains")["items"]
    assert second.returncode == 0, second.stderr
    assert "is in use, perhaps by another demo" in second.stderr
    assert "known from before" not in second.stderr
    names = {site["domain"] for site in sites}
    assert len(names) == 7
    assert not any(name in second.stdout for name in names)


@pytest.mark.full
def test_a_demo_without_changing_sites_leaves_its_sites_alone(fresh_machine: Machine):
    with fresh_machine.process("demo", "--no-changing") as demo:
        service = Service(demo, address_of(words_of(demo)))
        assert len(service.request_json("/api/v3/domains")["items"]) == 7
        assert running_jobs(service) == []


def address_of(lines: list[str]) -> str:
    """The address of the dashboard, which is announced before anything is scanned."""
    (place, first), *_ = [
        (place, line.removeprefix("Dashboard: ").rstrip("/"))
        for place, line in enumerate(lines)
        if line.startswith("Dashboard: ")
    ]
    assert place < next(n for n, line in enumerate(lines) if line.startswith("Scanning"))
    return first


def running_jobs(service: Service) -> list[object]:
    """The jobs that run now."""
    jobs: list[object] = service.request_json("/api/v3/jobs?status=processing")["items"]
    return jobs
