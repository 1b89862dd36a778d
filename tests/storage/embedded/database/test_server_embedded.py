"""The embedded PostgreSQL with its real processes and signals: who starts, shares and stops it."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from siteatlas.storage.embedded import server as deadline
from siteatlas.storage.embedded.files import Postmaster, process_lives
from siteatlas.storage.embedded.server import EmbeddedServer
from tests.fixtures.embedded import (
    HOLD_UNTIL_INPUT,
    IS_ROOT,
    ClientProcess,
    connected,
    is_running,
    kill_server,
    processes_naming,
    server_pid,
    silent_server,
    start_client,
)
from tests.fixtures.timings import measured

STARTING = "Waiting for PostgreSQL to start"
RECOVERING = "Waiting for PostgreSQL to recover from a crash"

RELEASE_IN_FORKED_CHILD = HOLD_UNTIL_INPUT.replace(
    'print("ready"',
    """
import os
child = os.fork()
if child == 0:
    server.release()
    os._exit(0)
os.waitpid(child, 0)
print("ready\"""",
)


async def test_first_use_makes_a_server_whose_address_sqlalchemy_understands(tmp_dir, monkeypatch):
    monkeypatch.setenv("PGPORT", "1")
    words: list[str] = []
    with EmbeddedServer(tmp_dir / "new" / "data", announce=words.append) as server:
        engine = create_async_engine(server.url)
        async with engine.connect() as connection:
            answer = await connection.scalar(text("SELECT current_user || current_database()"))
        await engine.dispose()
    assert answer == "siteatlassiteatlas"
    assert len(words) == 2
    assert words[0].endswith(f" {tmp_dir / 'new' / 'data'}")


def test_the_last_release_stops_the_server(data_dir):
    server = silent_server(data_dir)
    server.acquire()
    server.acquire()
    server.release()
    assert is_running(data_dir)
    server.release()
    assert not processes_naming(data_dir)
    server.release()


async def test_durability_is_on_and_the_collation_is_the_same_everywhere(data_dir):
    with silent_server(data_dir) as server:
        async with connected(server) as connection:
            on = ["fsync", "full_page_writes", "synchronous_commit", "data_checksums", "autovacuum"]
            shown = {name: await connection.fetchval(f"SHOW {name}") for name in on}
            collation = await connection.fetchrow(
                "SELECT datlocprovider::text, datlocale, pg_encoding_to_char(encoding) "
                "FROM pg_database WHERE datname = current_database()"
            )
            version = await connection.fetchval("SHOW server_version")
        assert server.server_version == version
    assert shown == dict.fromkeys(on, "on")
    assert tuple(collation) == ("b", "C.UTF-8", "UTF8")


async def test_the_server_listens_on_a_private_unix_socket_only(data_dir):
    with silent_server(data_dir) as server:
        async with connected(server) as connection:
            assert await connection.fetchval("SHOW listen_addresses") == ""
        directory = server.socket_dir.stat()
        assert stat.S_IMODE(directory.st_mode) == 0o700
        assert stat.S_IMODE((server.socket_dir / ".s.PGSQL.5432").stat().st_mode) == 0o700
        assert stat.S_IMODE((data_dir / "postgres").stat().st_mode) == 0o700
        listeners = Path(f"/proc/{server_pid(data_dir)}/net/tcp")
        if listeners.exists():
            assert not tcp_inodes(listeners) & socket_inodes(server_pid(data_dir))


def tcp_inodes(listing: Path) -> set[str]:
    lines = listing.read_text().splitlines() + listing.with_name("tcp6").read_text().splitlines()
    return {line.split()[9] for line in lines if "inode" not in line}


def socket_inodes(pid: int) -> set[str]:
    targets = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
    return {target[8:-1] for target in targets if target.startswith("socket:[")}


def test_a_second_process_joins_quickly_and_outlives_the_first(data_dir):
    first = start_client(data_dir)
    pid = server_pid(data_dir)
    second = silent_server(data_dir)
    began = time.perf_counter()
    second.acquire()
    measured(time.perf_counter() - began, 0.25)
    first.finish()
    assert is_running(data_dir)
    assert server_pid(data_dir) == pid
    second.release()
    assert not processes_naming(data_dir)


def test_four_processes_that_start_a_new_server_at_once_all_succeed(tmp_dir):
    users = [ClientProcess(tmp_dir / "data") for _ in range(4)]
    for user in users:
        user.wait_ready()
    for user in users:
        user.finish()
    assert not processes_naming(tmp_dir)


def test_a_server_left_by_a_killed_process_is_used_on_and_stopped_by_the_next(data_dir):
    killed = start_client(data_dir)
    pid = server_pid(data_dir)
    killed.kill()
    assert is_running(data_dir)
    with silent_server(data_dir):
        assert server_pid(data_dir) == pid
    assert not processes_naming(data_dir)


def test_a_first_start_announces_a_start_and_no_crash(data_dir, monkeypatch):
    monkeypatch.setattr(deadline, "MESSAGE_INTERVAL_SECONDS", 0.001)
    words: list[str] = []
    # A process that is held up while the server starts does not wait for it, and says nothing.
    for attempt in range(5):
        with EmbeddedServer(data_dir / str(attempt), announce=words.append):
            pass
        if words:
            break
    assert any(word.startswith(STARTING) for word in words)
    assert not any(word.startswith(RECOVERING) for word in words)


async def test_a_killed_server_is_recovered_with_a_word_and_without_loss(data_dir, monkeypatch):
    monkeypatch.setattr(deadline, "MESSAGE_INTERVAL_SECONDS", 0.001)
    owner = start_client(data_dir)
    words: list[str] = []
    server = EmbeddedServer(data_dir, announce=words.append)
    server.acquire()
    async with connected(server) as connection:
        await connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
        killed = kill_server(data_dir)
        newcomer = start_client(data_dir)
    assert server_pid(data_dir) != killed
    kill_server(data_dir)
    server.acquire()
    async with connected(server) as connection:
        assert await connection.fetchval("SELECT number FROM kept") == 7
        await connection.execute("DROP TABLE kept")
    assert any(word.startswith(RECOVERING) for word in words)
    newcomer.finish()
    owner.finish()
    server.release()
    server.release()


def test_a_server_that_is_killed_again_while_it_recovers_is_waited_for(data_dir, monkeypatch):
    monkeypatch.setattr(deadline, "MESSAGE_INTERVAL_SECONDS", 0.001)
    killed: list[int] = []

    def kill_while_it_recovers(_words: str) -> None:
        found = Postmaster.of(data_dir / "postgres")
        has_begun = (data_dir / "postgres.log").stat().st_size > 0
        if len(killed) < 2 and has_begun and found and found.lives:
            killed.append(kill_server(data_dir))

    with silent_server(data_dir):
        kill_server(data_dir)
        with EmbeddedServer(data_dir, announce=kill_while_it_recovers):
            assert is_running(data_dir)
    assert killed


def test_release_is_quiet_when_the_server_has_died(data_dir):
    server = silent_server(data_dir)
    server.acquire()
    killed = kill_server(data_dir)
    server.release()
    server.release()
    with silent_server(data_dir):  # the next start frees the shared memory of the killed server
        assert server_pid(data_dir) != killed
        assert is_running(data_dir)
    assert not processes_naming(data_dir)


def test_release_is_quiet_when_the_directory_is_gone(tmp_dir, copied_dir):
    server = silent_server(copied_dir)
    server.acquire()
    pid = server_pid(copied_dir)
    copied_dir.rename(tmp_dir / "elsewhere")
    server.release()
    assert not copied_dir.exists()
    os.kill(pid, signal.SIGINT)
    while process_lives(pid):
        time.sleep(0.01)
    assert not processes_naming(copied_dir)


def test_a_lock_file_that_names_another_program_is_no_obstacle(data_dir):
    server = silent_server(data_dir)
    server.acquire()
    kill_server(data_dir)
    server.release()
    lock_file = data_dir / "postgres" / "postmaster.pid"
    owner = lock_file.stat().st_uid
    other = subprocess.Popen(["sleep", "30"], user=owner if IS_ROOT else None)
    try:
        _, _, rest = lock_file.read_text().partition("\n")
        lock_file.write_text(f"{other.pid}\n{rest}")
        with silent_server(data_dir):
            assert server_pid(data_dir) != other.pid
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_forked_child_leaves_the_server_to_its_parent(data_dir):
    parent = start_client(data_dir, RELEASE_IN_FORKED_CHILD)
    assert is_running(data_dir)
    with silent_server(data_dir):
        pass
    assert is_running(data_dir)
    parent.finish()
    assert not processes_naming(data_dir)


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(data_dir):
    with silent_server(data_dir):
        assert os.getsid(server_pid(data_dir)) != os.getsid(0)
        assert os.getpgid(server_pid(data_dir)) != os.getpgid(0)


def test_waiting_for_another_command_is_announced(data_dir, monkeypatch):
    monkeypatch.setattr(deadline, "MESSAGE_INTERVAL_SECONDS", 0.05)
    words: list[str] = []
    with (data_dir / "server.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        later = threading.Timer(0.2, fcntl.flock, (held, fcntl.LOCK_UN))
        later.start()
        with EmbeddedServer(data_dir, announce=words.append):
            later.join()
    assert re.search(r"\d s ", words[0])


def test_an_interrupted_start_leaves_no_server(data_dir, monkeypatch):
    monkeypatch.setattr(deadline, "MESSAGE_INTERVAL_SECONDS", 0.001)

    interrupts = [KeyboardInterrupt()]

    def interrupt(word: str) -> None:
        waits = word.startswith((STARTING, RECOVERING))
        if interrupts and waits and Postmaster.of(data_dir / "postgres"):
            raise interrupts.pop()

    with pytest.raises(KeyboardInterrupt):
        EmbeddedServer(data_dir, announce=interrupt).acquire()
    assert not interrupts
    assert not processes_naming(data_dir)


def test_an_unfinished_setup_is_started_over(tmp_dir):
    rubbish = tmp_dir / "data" / "postgres.new" / "base"
    rubbish.mkdir(parents=True)
    with silent_server(tmp_dir / "data"):
        assert is_running(tmp_dir / "data")
    assert not rubbish.parent.exists()
