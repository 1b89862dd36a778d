"""The watchdog of the embedded server: it starts a killed server again, and its crash is noticed."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from siteatlas.settings import Settings
from siteatlas.storage import startup
from siteatlas.storage.startup import open_storage
from tests.fixtures.embedded import is_running, kill_server
from tests.fixtures.log_lines import log_lines, logged
from tests.fixtures.waiting import wait_until

__all__ = ["log_lines"]

# The real program; only its watchdog meets a fault that nobody has foreseen.
CRASHING_PROGRAM = """
import sys
from siteatlas.cli.main import main
from siteatlas.storage.embedded.server import EmbeddedServer

def crash(server):
    raise ZeroDivisionError("the watchdog is broken")

EmbeddedServer.revive = crash
sys.argv[0] = "siteatlas"
main()
"""


@pytest.fixture(autouse=True)
def quick_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "LOOK_SECONDS", 0.05)


async def test_a_killed_server_is_started_again(data_dir: Path, log_lines: io.StringIO) -> None:
    async with open_storage(Settings(data_dir=data_dir)):
        kill_server(data_dir)
        await wait_until(lambda: bool(logged(log_lines, "embedded_server_restarted")), seconds=30)
        assert is_running(data_dir)


async def test_a_crash_of_the_watchdog_ends_the_use_of_the_server(
    data_dir: Path, log_lines: io.StringIO
) -> None:
    is_open = False

    def announce(_text: str) -> None:
        if is_open:
            raise ZeroDivisionError("nobody foresaw this")

    async def use() -> None:
        nonlocal is_open
        async with open_storage(Settings(data_dir=data_dir), announce=announce):
            is_open = True
            kill_server(data_dir)
            await asyncio.Event().wait()

    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(use(), 30)
    (line,) = logged(log_lines, "background_task_crashed")
    assert line["task"] == "_revive_when_dead"
    assert not is_running(data_dir)


@pytest.mark.full
@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["worker"]])
def test_a_process_whose_watchdog_crashes_shuts_down_gracefully(
    data_dir: Path, command: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASHING_PROGRAM, *command],
        env={"SITEATLAS_DATA_DIR": str(data_dir), "SITEATLAS_LOG_FORMAT": "json"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    errors = [line["event"] for line in lines if line["level"] == "error"]
    assert done.returncode == 1, done.stderr
    assert errors == ["background_task_crashed", "command_error"]
    assert "worker_stopped" in [line["event"] for line in lines]
    assert "ZeroDivisionError: the watchdog is broken" in lines[-1]["error"]
    assert not is_running(data_dir)
