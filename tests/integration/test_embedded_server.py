"""The embedded PostgreSQL with its real programs, processes and signals."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import ClassVar

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from siteatlas.errors import (
    EmbeddedBinaryMissing,
    EmbeddedDirectoryUnusable,
    EmbeddedServerError,
    EmbeddedVersionMismatch,
)
from siteatlas.storage import binaries, patience
from siteatlas.storage.binaries import installed_programs
from siteatlas.storage.embedded import EmbeddedServer
from siteatlas.storage.postmaster import Postmaster, process_lives
from siteatlas.storage.server_user import server_user_for

IS_ROOT = os.geteuid() == 0
only_root = pytest.mark.skipif(not IS_ROOT, reason="needs root")

HOLD_UNTIL_TOLD = """
import sys
from pathlib import Path
from siteatlas.storage.embedded import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]), announce=lambda text: None)
server.acquire()
print("ready", flush=True)
sys.stdin.readline()
server.release()
"""
HOLD_AS_NOBODY = """
import os, pwd, sys
from pathlib import Path
import siteatlas.storage.embedded, encodings.idna
nobody = pwd.getpwnam("nobody")
os.setgroups([]); os.setgid(nobody.pw_gid); os.setuid(nobody.pw_uid)
""" + HOLD_UNTIL_TOLD.replace("import sys\n", "")
RELEASE_IN_FORKED_CHILD = HOLD_UNTIL_TOLD.replace(
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


@contextmanager
def open_directory() -> Iterator[Path]:
    """A directory that also the server's user of root can reach, unlike those of pytest."""
    path = Path(tempfile.mkdtemp(prefix="siteatlas-test-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        check_nothing_is_left(path)
        shutil.rmtree(path)


def check_nothing_is_left(path: Path) -> None:
    left = processes_naming(path)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "a server was left running"


def processes_naming(path: Path) -> list[int]:
    listing = subprocess.run(
        ["ps", "-axww", "-o", "pid=,stat=,command="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 2) for line in listing.splitlines() if str(path) in line]
    return [int(pid) for pid, state, command in rows if state[0] != "Z" and "postgres" in command]


@pytest.fixture(scope="module")
def made_once() -> Iterator[Path]:
    with open_directory() as directory:
        with EmbeddedServer(directory / "data"):
            pass
        yield directory / "data"


@pytest.fixture
def place() -> Iterator[Path]:
    with open_directory() as directory:
        yield directory


@pytest.fixture
def data_dir(made_once: Path) -> Iterator[Path]:
    """A data directory that other tests use too, so that a start takes no second."""
    yield made_once
    check_nothing_is_left(made_once)


@pytest.fixture
def copied_dir(place: Path, made_once: Path) -> Path:
    """A copy of it, to be damaged."""
    subprocess.run(["cp", "-a", str(made_once), str(place / "data")], check=True)
    return place / "data"


class User:
    """Another process that uses the server until told to stop."""

    started: ClassVar[list[User]] = []

    def __init__(self, data_dir: Path, script: str = HOLD_UNTIL_TOLD) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, str(data_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(self)

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise AssertionError(self.process.communicate()[1])

    def finish(self) -> None:
        _, errors = self.process.communicate("\n")
        assert self.process.returncode == 0, errors

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()


@pytest.fixture(autouse=True)
def no_other_user_is_left() -> Iterator[None]:
    yield
    while User.started:
        User.started.pop().kill()


def joined(data_dir: Path, script: str = HOLD_UNTIL_TOLD) -> User:
    user = User(data_dir, script)
    user.wait_ready()
    return user


def quiet(data_dir: Path) -> EmbeddedServer:
    return EmbeddedServer(data_dir, announce=lambda _: None)


def server_pid(data_dir: Path) -> int:
    found = Postmaster.of(data_dir / "postgres")
    assert found is not None
    return found.pid


def kill_server(data_dir: Path) -> int:
    pid = server_pid(data_dir)
    os.kill(pid, signal.SIGKILL)
    while process_lives(pid):
        time.sleep(0.01)
    return pid


def runs(data_dir: Path) -> bool:
    found = Postmaster.of(data_dir / "postgres")
    return found is not None and found.accepts_connections


@asynccontextmanager
async def connected(server: EmbeddedServer):
    connection = await asyncpg.connect(
        host=str(server.socket_dir), port=5432, user="siteatlas", database="siteatlas"
    )
    try:
        yield connection
    finally:
        connection.terminate()


async def test_first_use_makes_a_server_whose_address_sqlalchemy_understands(place, monkeypatch):
    monkeypatch.setenv("PGPORT", "1")
    words: list[str] = []
    with EmbeddedServer(place / "new" / "data", announce=words.append) as server:
        engine = create_async_engine(server.url)
        async with engine.connect() as connection:
            answer = await connection.scalar(text("SELECT current_user || current_database()"))
        await engine.dispose()
    assert answer == "siteatlassiteatlas"
    assert words == [
        f"Setting up the embedded PostgreSQL in {place / 'new' / 'data'}",
        "Starting the embedded PostgreSQL",
    ]


def test_the_last_release_stops_the_server(data_dir):
    server = quiet(data_dir)
    server.acquire()
    server.acquire()
    server.release()
    assert runs(data_dir)
    server.release()
    assert not processes_naming(data_dir)
    server.release()


async def test_durability_is_on_and_the_collation_is_the_same_everywhere(data_dir):
    with quiet(data_dir) as server:
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
    with quiet(data_dir) as server:
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
    first = joined(data_dir)
    pid = server_pid(data_dir)
    second = quiet(data_dir)
    began = time.perf_counter()
    second.acquire()
    assert time.perf_counter() - began < 0.05
    first.finish()
    assert runs(data_dir)
    assert server_pid(data_dir) == pid
    second.release()
    assert not processes_naming(data_dir)


def test_four_processes_that_start_a_new_server_at_once_all_succeed(place):
    users = [User(place / "data") for _ in range(4)]
    for user in users:
        user.wait_ready()
    for user in users:
        user.finish()
    assert not processes_naming(place)


def test_a_server_left_by_a_killed_process_is_used_on_and_stopped_by_the_next(data_dir):
    killed = joined(data_dir)
    pid = server_pid(data_dir)
    killed.kill()
    assert runs(data_dir)
    with quiet(data_dir):
        assert server_pid(data_dir) == pid
    assert not processes_naming(data_dir)


async def test_a_killed_server_is_recovered_with_a_word_and_without_loss(data_dir, monkeypatch):
    monkeypatch.setattr(patience, "WORD_EVERY_SECONDS", 0.001)
    owner = joined(data_dir)
    words: list[str] = []
    server = EmbeddedServer(data_dir, announce=words.append)
    server.acquire()
    async with connected(server) as connection:
        await connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
        killed = kill_server(data_dir)
        newcomer = joined(data_dir)
    assert server_pid(data_dir) != killed
    kill_server(data_dir)
    server.acquire()
    async with connected(server) as connection:
        assert await connection.fetchval("SELECT number FROM kept") == 7
        await connection.execute("DROP TABLE kept")
    assert any("recovery after a crash" in word for word in words)
    newcomer.finish()
    owner.finish()
    server.release()
    server.release()


def test_release_is_quiet_when_the_server_has_died(data_dir):
    server = quiet(data_dir)
    server.acquire()
    kill_server(data_dir)
    server.release()
    server.release()


def test_release_is_quiet_when_the_directory_is_gone(place, copied_dir):
    server = quiet(copied_dir)
    server.acquire()
    pid = server_pid(copied_dir)
    copied_dir.rename(place / "elsewhere")
    server.release()
    os.kill(pid, signal.SIGINT)
    while process_lives(pid):
        time.sleep(0.01)


def test_a_lock_file_that_names_another_program_is_no_obstacle(data_dir):
    server = quiet(data_dir)
    server.acquire()
    kill_server(data_dir)
    server.release()
    lock_file = data_dir / "postgres" / "postmaster.pid"
    owner = lock_file.stat().st_uid
    other = subprocess.Popen(["sleep", "30"], user=owner if IS_ROOT else None)
    try:
        _, _, rest = lock_file.read_text().partition("\n")
        lock_file.write_text(f"{other.pid}\n{rest}")
        with quiet(data_dir):
            assert server_pid(data_dir) != other.pid
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_forked_child_leaves_the_server_to_its_parent(data_dir):
    parent = joined(data_dir, RELEASE_IN_FORKED_CHILD)
    assert runs(data_dir)
    with quiet(data_dir):
        pass
    assert runs(data_dir)
    parent.finish()
    assert not processes_naming(data_dir)


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(data_dir):
    with quiet(data_dir):
        assert os.getsid(server_pid(data_dir)) != os.getsid(0)
        assert os.getpgid(server_pid(data_dir)) != os.getpgid(0)


def test_waiting_for_another_command_is_announced(data_dir, monkeypatch):
    monkeypatch.setattr(patience, "WORD_EVERY_SECONDS", 0.05)
    words: list[str] = []
    with (data_dir / "server.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        later = threading.Timer(0.2, fcntl.flock, (held, fcntl.LOCK_UN))
        later.start()
        with EmbeddedServer(data_dir, announce=words.append):
            later.join()
    assert words[0].startswith("Another command is starting or stopping PostgreSQL")


def test_an_interrupted_start_leaves_no_server(data_dir, monkeypatch):
    monkeypatch.setattr(patience, "WORD_EVERY_SECONDS", 0.001)

    def interrupt(word: str) -> None:
        if word.startswith("Waiting") and Postmaster.of(data_dir / "postgres"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        EmbeddedServer(data_dir, announce=interrupt).acquire()
    assert not processes_naming(data_dir)


def test_an_unfinished_set_up_is_begun_anew(place):
    rubbish = place / "data" / "postgres.new" / "base"
    rubbish.mkdir(parents=True)
    with quiet(place / "data"):
        assert runs(place / "data")
    assert not rubbish.parent.exists()


@pytest.mark.parametrize("name", ["long-" * 25, "odd: name, 'quoted'"])
async def test_the_socket_lies_elsewhere_when_the_path_cannot_hold_one(place, made_once, name):
    subprocess.run(["cp", "-a", str(made_once), str(place / name)], check=True)
    with quiet(place / name) as server:
        assert len(str(server.socket_dir)) < 90
        assert place not in server.socket_dir.parents
        assert stat.S_IMODE(server.socket_dir.stat().st_mode) == 0o700
        async with connected(server) as connection:
            assert await connection.fetchval("SELECT 1") == 1
    server.socket_dir.rmdir()


@only_root
def test_a_socket_directory_taken_by_another_user_is_refused(place, made_once):
    name = "long-" * 25
    subprocess.run(["cp", "-a", str(made_once), str(place / name)], check=True)
    with quiet(place / name) as server:
        pass
    os.chown(server.socket_dir, 12345, 12345)
    with pytest.raises(EmbeddedDirectoryUnusable, match="belongs to another user"):
        quiet(place / name).acquire()
    server.socket_dir.rmdir()


def test_data_of_another_major_version_is_refused_with_what_to_do(copied_dir):
    (copied_dir / "postgres" / "PG_VERSION").write_text("16\n")
    with pytest.raises(EmbeddedVersionMismatch, match=r"PostgreSQL 16.*db backup.*DATABASE_URL"):
        quiet(copied_dir).acquire()


def test_a_file_in_place_of_the_directory_is_refused(place):
    (place / "data").touch()
    with pytest.raises(EmbeddedDirectoryUnusable, match=r"not a directory.*DATABASE_URL"):
        quiet(place / "data").acquire()
    with pytest.raises(EmbeddedDirectoryUnusable, match=r"Not a directory.*DATABASE_URL"):
        quiet(place / "data" / "below").acquire()


def test_foreign_files_are_never_overwritten(place):
    foreign = place / "data" / "postgres" / "letter.txt"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("dear")
    with pytest.raises(EmbeddedDirectoryUnusable, match="not a PostgreSQL data directory"):
        quiet(place / "data").acquire()
    assert foreign.read_text() == "dear"


def test_a_platform_without_programs_is_told_about_database_url(place, monkeypatch):
    monkeypatch.setattr(binaries, "FOLDER", "pginstall-of-no-platform")
    with pytest.raises(EmbeddedBinaryMissing, match="DATABASE_URL"):
        quiet(place / "data").acquire()


def test_a_server_that_cannot_start_says_why(copied_dir):
    (copied_dir / "postgres" / "global" / "pg_control").unlink()
    with pytest.raises(EmbeddedServerError, match=r"pg_control.*DATABASE_URL"):
        quiet(copied_dir).acquire()


@only_root
def test_as_root_the_server_runs_as_nobody_and_opens_only_its_own_directory(place):
    place.chmod(0o711)
    given = place / "given"
    given.mkdir(mode=0o700)
    with quiet(given) as server:
        assert (given / "postgres").stat().st_uid == server.socket_dir.stat().st_uid != 0
        assert Path(f"/proc/{server_pid(given)}").stat().st_uid != 0
    assert stat.S_IMODE(given.stat().st_mode) == 0o711
    assert stat.S_IMODE(place.stat().st_mode) == 0o711


@only_root
def test_as_root_a_directory_that_nobody_can_reach_is_refused_and_left_as_it_was(place):
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(EmbeddedDirectoryUnusable, match=r"cannot reach.*SITEATLAS_DATA_DIR"):
        quiet(closed / "data").acquire()
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@only_root
def test_as_root_programs_that_nobody_can_reach_are_copied_beside_the_data(place, data_dir):
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    package = installed_programs().folder.parent
    for path in package.parent.glob(f"{package.name}*"):
        (closed / path.name).symlink_to(path)
    script = f"import sys; sys.path.insert(0, {str(closed)!r})\n{HOLD_UNTIL_TOLD}"
    user = joined(data_dir, script)
    (program,) = Path(f"/proc/{server_pid(data_dir)}").glob("exe")
    assert program.readlink().is_relative_to(data_dir / "programs")
    user.finish()


@only_root
def test_an_ordinary_user_starts_and_stops_a_server(place):
    if not server_user_for().may_enter(Path(installed_programs().path("postgres"))):
        pytest.skip("the installed programs are closed to other users")
    nobody = server_user_for()
    os.chown(place, nobody.uid, nobody.gid)
    user = joined(place / "of" / "nobody", HOLD_AS_NOBODY)
    assert (place / "of" / "nobody").stat().st_uid == nobody.uid
    assert stat.S_IMODE((place / "of" / "nobody").stat().st_mode) == 0o700
    user.finish()
    assert not processes_naming(place)
    with quiet(place / "of" / "nobody"):
        assert runs(place / "of" / "nobody")
    joined(place / "of" / "nobody", HOLD_AS_NOBODY).finish()


@only_root
def test_a_full_disk_is_named_as_the_reason(place):
    disk = place / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=20m,mode=755", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount")
    try:
        with pytest.raises(EmbeddedDirectoryUnusable, match=r"disk .*is full.*DATABASE_URL"):
            quiet(disk / "data").acquire()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.skipif(IS_ROOT, reason="root may write everywhere")
def test_a_directory_without_write_permission_is_refused(place):
    place.chmod(0o500)
    try:
        with pytest.raises(EmbeddedDirectoryUnusable, match=r"Permission denied.*DATABASE_URL"):
            quiet(place / "data").acquire()
    finally:
        place.chmod(0o700)
