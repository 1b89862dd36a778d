"""`siteatlas db backup` and `restore`, and the trace of commands in `siteatlas audit`."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest
from sqlalchemy import func, select, text

from siteatlas.storage.session import Database
from tests.fixtures.commands import COMMAND, TIMEOUT_SECONDS, Machine
from tests.fixtures.database import transaction
from tests.fixtures.records import add_domain

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def machine(tmp_path: Path, database_url: str) -> Machine:
    """A machine that uses the database of the test."""
    return Machine(tmp_path, {"DATABASE_URL": database_url})


def actions(machine: Machine) -> list[str]:
    """What the audit trail tells, oldest first."""
    return [event["action"] for event in reversed(machine.json("audit")["items"])]


async def test_a_backup_is_one_private_file_and_can_be_restored(
    database: Database, machine: Machine, tmp_path: Path
):
    async with transaction() as session:
        await add_domain(session, "kept.example")
    file = tmp_path / "siteatlas.backup"
    file.write_text("an older backup")
    assert machine.run("db", "backup", str(file)).stderr.endswith("1 site, 0 URLs, 0 jobs.\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name]
    async with transaction() as session:
        await add_domain(session, "late.example")
    refused = machine.run("db", "restore", str(file))
    assert refused.returncode == 4
    assert "database_not_empty" in refused.stderr
    assert machine.run("db", "restore", str(file), "--replace").returncode == 0
    (site,) = machine.json("domains", "list")["items"]
    assert site["domain"] == "kept.example"
    assert actions(machine) == ["db backup", "db restore"]
    assert {event["target"] for event in machine.json("audit")["items"]} == {file.name}


@pytest.mark.full
async def test_a_backup_goes_through_pipes(database: Database, machine: Machine):
    async with transaction() as session:
        await add_domain(session, "piped.example")
    written = subprocess.run(
        [COMMAND, "db", "backup", "-"],
        env=machine.environment,
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    subprocess.run(
        [COMMAND, "db", "restore", "-", "--replace"],
        env=machine.environment,
        input=written.stdout,
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    assert machine.json("domains", "list")["items"][0]["domain"] == "piped.example"


@pytest.mark.full
async def test_a_restore_that_waits_for_its_pipe_is_stopped_by_a_signal(
    database: Database, machine: Machine
):
    waiting = subprocess.Popen(
        [COMMAND, "db", "restore", "-"], env=machine.environment, stdin=subprocess.PIPE
    )
    with waiting:
        await asyncio.to_thread(wait_for_reading, waiting.pid)
        waiting.terminate()
        assert await asyncio.to_thread(waiting.wait, 30) in {-signal.SIGALRM, 128 + signal.SIGTERM}


def wait_for_reading(pid: int) -> None:
    """Wait until a process reads from its pipe."""
    for _ in range(1_500):
        if Path(f"/proc/{pid}/wchan").read_text().startswith(("pipe", "anon_pipe")):
            return
        time.sleep(0.02)
    raise TimeoutError


@pytest.mark.full
async def test_a_read_only_database_is_backed_up_without_a_record(
    database: Database, machine: Machine, tmp_path: Path
):
    async with transaction() as session:
        name = await session.scalar(select(func.current_database()))
        await session.execute(text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
    file = tmp_path / "siteatlas.backup"
    result = machine.run("db", "backup", str(file))
    assert result.returncode == 0, result.stderr
    assert "not recorded in the audit trail" in result.stderr
    assert file.exists()
    assert actions(machine) == []


@pytest.mark.full
async def test_a_file_that_cannot_be_written_or_read_is_named(
    database: Database, machine: Machine, tmp_path: Path
):
    lost = str(tmp_path / "nowhere" / "file")
    written = machine.run("db", "backup", lost)
    assert written.returncode == 1
    assert "output_failed" in written.stderr
    assert lost in written.stderr
    read = machine.run("db", "restore", lost)
    assert read.returncode == 2
    assert lost in read.stderr
    no_backup = tmp_path / "text"
    no_backup.write_text("not a backup")
    assert "backup_invalid" in machine.run("db", "restore", str(no_backup)).stderr
    assert actions(machine) == []


@pytest.mark.full
async def test_commands_that_manage_keys_leave_a_trace(database: Database, machine: Machine):
    key = machine.json("keys", "create", "--name", "laptop", "--scope", "admin")
    assert machine.run("keys", "revoke", key["id"]).returncode == 0
    assert machine.run("keys", "reset", "--yes").returncode == 0
    assert actions(machine) == ["keys create", "keys revoke", "keys reset"]
    listed = machine.run("audit", "--format", "jsonl").stdout
    assert key["key"].split("_")[2] not in listed
    event = json.loads(listed.splitlines()[-1])
    assert (event["target"], event["status"]) == (key["id"], 200)
    assert event["user_name"]
    assert event["address"]
    assert "No event matches." in machine.run("audit", "--user", "nobody-else").stderr
