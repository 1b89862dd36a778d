"""The receiver and the commands of the page on webhooks run as they are written."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from siteatlas.demo.server import DemoSite
from tests.fixtures.commands import Machine, running_demo_sites
from tests.fixtures.waiting import block_until

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "receive-webhooks.md"
TEXT = PAGE.read_text(encoding="utf-8")
(PROGRAM,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
((SETTING, ALLOWED),) = re.findall(r"```sh\nexport (\w+)=(.*?)\n```", TEXT)
CREATE, TEST = (line.split() for line in re.findall(r"```sh\nsiteatlas (.*?)\n```", TEXT))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_receiver(port: int, secret: str) -> Iterator[subprocess.Popen[str]]:
    program = PROGRAM.replace("9000", str(port))
    environment = os.environ | {"WEBHOOK_SECRET": secret}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            block_until(lambda: is_listening(port))
            yield process
        finally:
            process.kill()


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_setting_comes_before_the_commands_that_need_it():
    assert TEXT.index(f"export {SETTING}") < TEXT.index("siteatlas webhooks create")


def test_the_receiver_has_twelve_lines():
    assert len([line for line in PROGRAM.splitlines() if line.strip()]) == 12


@pytest.mark.full
@pytest.mark.slow
def test_the_receiver_gets_a_message_about_a_published_scan(database_url: str, tmp_path: Path):
    port = free_port()
    with running_demo_sites() as sites:
        site: DemoSite = next(iter(sites.values()))
        allowed = f"{ALLOWED.replace('9000', str(port))},{site.host_port}"
        environment = {"DATABASE_URL": database_url, SETTING: allowed}
        machine = Machine(tmp_path, environment)
        with machine.service() as service:
            create = [word.replace("9000", str(port)) for word in CREATE]
            created = machine.json(*create)
            assert created["types"] == ["scan.published", "scan.failed"]
            with running_receiver(port, created["secret"]) as receiver:
                test = [word.replace("ID", created["id"]) for word in TEST]
                assert machine.run(*test).returncode == 0
                assert service.scan(site)["status"] == "completed"
                assert receiver.stdout is not None
                printed = [receiver.stdout.readline().split()[0] for _ in range(2)]
                # It prints before it answers.
                log = ("webhooks", "deliveries", created["id"])
                block_until(lambda: len(machine.json(*log)["items"]) == 2)
            assert printed == ["webhook.test", "scan.published"]
            assert machine.run(*test).returncode == 1
            listed = machine.json(*log)["items"]
            assert [entry["delivered"] for entry in listed] == [False, True, True]
