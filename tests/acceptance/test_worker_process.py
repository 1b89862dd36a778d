"""`siteatlas worker --processes`: what happens when one of its processes is killed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.commands import TIMEOUT_SECONDS, Machine
from tests.fixtures.embedded import data_directory
from tests.fixtures.pipeline import pages, urlset
from tests.fixtures.site_server import Pages
from tests.fixtures.thread_server import running_site
from tests.fixtures.waiting import block_until

READY = "Running jobs from the queue."


@pytest.fixture
def machine() -> Iterator[Machine]:
    with data_directory() as folder:
        yield Machine(folder)


def workers_of(group: subprocess.Popen[str]) -> list[int]:
    """The workers of a group, all of which are at work."""
    assert group.stderr is not None
    ready = 0
    while ready < 2:
        line = group.stderr.readline()
        assert line, "the group ended before it was at work"
        ready += READY in line
    return [
        int(pid) for pid in Path(f"/proc/{group.pid}/task/{group.pid}/children").read_text().split()
    ]


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
        text: str = answer.read().decode()
        return text


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.full
def test_a_killed_worker_is_named_and_gives_the_exit_code(machine: Machine):
    with machine.process("worker", "--processes", "2") as group:
        killed, other = workers_of(group)
        os.kill(killed, signal.SIGKILL)
        _, words = group.communicate(timeout=TIMEOUT_SECONDS)
    assert group.returncode == 128 + signal.SIGKILL
    assert re.search(rf"^Process {killed} .*\bsignal 9\b", words, re.MULTILINE)
    assert "worker_process_ended" in words
    assert "Ctrl-C" not in words
    assert not is_running(other)
    assert machine.postgres_processes() == []


@pytest.mark.full
def test_workers_shut_down_gracefully_when_their_group_is_killed(machine: Machine):
    with machine.process("worker", "--processes", "2") as group:
        workers = workers_of(group)
        group.kill()
        block_until(lambda: not any(map(is_running, workers)))
        _, words = group.communicate(timeout=TIMEOUT_SECONDS)
    assert words.count("parent_process_exited") == 2
    assert "Traceback" not in words
    assert machine.postgres_processes() == []


@pytest.mark.full
def test_a_group_that_is_asked_to_stop_says_so_once(machine: Machine):
    with machine.process("worker", "--processes", "2") as group:
        workers = workers_of(group)
        group.send_signal(signal.SIGINT)
        _, words = group.communicate(timeout=TIMEOUT_SECONDS)
    assert group.returncode == 0
    assert words.count("Ctrl-C") == 1
    assert "worker_process_ended" not in words
    assert not any(map(is_running, workers))


def test_each_worker_shows_its_own_metrics_and_health(machine: Machine):
    urls: list[str] = []
    with machine.process("worker", "--processes", "2", "--metrics-port", "0") as group:
        assert group.stderr is not None
        while len(urls) < 2:
            line = group.stderr.readline()
            assert line, "the group ended before it told its ports"
            urls += re.findall(r"^Metrics at (http://127\.0\.0\.1:\d+)/metrics$", line.strip())
        for url in urls:
            assert json.loads(fetched(f"{url}/health"))["status"] == "ok"
            while "\nsiteatlas_heartbeat_timestamp_seconds 0.0\n" in fetched(f"{url}/metrics"):
                time.sleep(0.1)
            assert "\nsiteatlas_heartbeat_timestamp_seconds 1" in fetched(f"{url}/metrics")
    assert len(set(urls)) == 2


@pytest.mark.parametrize("command", ["worker", pytest.param("serve", marks=pytest.mark.full)])
def test_a_process_that_is_drained_finishes_its_job_and_takes_no_other(command: str):
    asked, go_on = threading.Event(), threading.Event()

    async def answer(_request: object) -> str:
        asked.set()
        await asyncio.to_thread(go_on.wait, TIMEOUT_SECONDS)
        return ""

    slow: Pages = {"/robots.txt": answer, "/sitemap.xml": urlset(pages("a", 3))}
    with (
        running_site(slow) as running,
        running_site({"/sitemap.xml": urlset(pages("b", 3))}) as later,
        data_directory() as folder,
    ):
        allowed = f"{running.host_port},{later.host_port}"
        one_slot = {"SITEATLAS_CONCURRENCY": "1", "SITEATLAS_PORT": "0"}
        machine = Machine(folder, one_slot | {"SITEATLAS_EGRESS_ALLOW": allowed})
        with machine.process(command) as process:
            machine.run("domains", "add", running.host_port, later.host_port)
            assert asked.wait(TIMEOUT_SECONDS)
            process.send_signal(signal.SIGUSR1)
            assert process.stderr is not None
            while "Finishing the running jobs" not in process.stderr.readline():
                pass
            go_on.set()
            assert process.wait(TIMEOUT_SECONDS) == 0
        jobs = machine.json("jobs", "list")["items"]
    ended = {job["domain"]: (job["status"], job["attempt"]) for job in jobs}
    assert ended == {running.host_port: ("completed", 1), later.host_port: ("pending", 0)}
