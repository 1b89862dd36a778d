"""Where the embedded PostgreSQL can run, as which user, and the errors where it cannot."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from siteatlas.errors import (
    EmbeddedBinaryMissing,
    EmbeddedDirectoryUnusable,
    EmbeddedServerError,
    EmbeddedVersionMismatch,
)
from siteatlas.storage.embedded import files as binaries
from siteatlas.storage.embedded.files import installed_programs, server_user_for
from tests.fixtures.embedded import (
    HOLD_UNTIL_INPUT,
    IS_ROOT,
    ClientProcess,
    connected,
    is_running,
    processes_naming,
    server_pid,
    silent_server,
    start_client,
)

only_root = pytest.mark.skipif(not IS_ROOT, reason="needs root")

HOLD_AS_NOBODY = """
import os, pwd, sys
from pathlib import Path
import siteatlas.storage.embedded.server, encodings.idna
nobody = pwd.getpwnam("nobody")
os.setgroups([]); os.setgid(nobody.pw_gid); os.setuid(nobody.pw_uid)
""" + HOLD_UNTIL_INPUT.replace("import sys\n", "")
WITHOUT_NAME = (
    "os.setgid(nobody.pw_gid); os.setuid(nobody.pw_uid)",
    "os.setgid(54321); os.setuid(54321)",
)


@pytest.mark.parametrize("name", ["long-" * 25, "odd: name, 'quoted'"])
async def test_the_socket_lies_elsewhere_when_the_path_cannot_hold_one(
    tmp_dir, initialized_dir, name
):
    subprocess.run(["cp", "-a", str(initialized_dir), str(tmp_dir / name)], check=True)
    with silent_server(tmp_dir / name) as server:
        assert len(str(server.socket_dir)) < 90
        assert tmp_dir not in server.socket_dir.parents
        assert stat.S_IMODE(server.socket_dir.stat().st_mode) == 0o700
        async with connected(server) as connection:
            assert await connection.fetchval("SELECT 1") == 1
    assert not server.socket_dir.exists()


@only_root
async def test_a_socket_directory_taken_by_another_user_is_left_alone(tmp_dir, initialized_dir):
    name = "long-" * 25
    subprocess.run(["cp", "-a", str(initialized_dir), str(tmp_dir / name)], check=True)
    with silent_server(tmp_dir / name) as server:
        taken = server.socket_dir
    taken.mkdir()
    os.chown(taken, 12345, 12345)
    try:
        with silent_server(tmp_dir / name) as server:
            assert server.socket_dir != taken
            assert stat.S_IMODE(server.socket_dir.stat().st_mode) == 0o700
            async with connected(server) as connection:
                assert await connection.fetchval("SELECT 1") == 1
        assert not server.socket_dir.exists()
    finally:
        taken.rmdir()


def test_data_of_another_major_version_is_refused_with_what_to_do(copied_dir):
    (copied_dir / "postgres" / "PG_VERSION").write_text("16\n")
    with pytest.raises(
        EmbeddedVersionMismatch, match=r"PostgreSQL 16.*db upgrade-server.*DATABASE_URL"
    ):
        silent_server(copied_dir).acquire()


def test_a_file_in_place_of_the_directory_is_refused(tmp_dir):
    (tmp_dir / "data").touch()
    for path in (tmp_dir / "data", tmp_dir / "data" / "below"):
        with pytest.raises(EmbeddedDirectoryUnusable, match=rf"^{path} .*DATABASE_URL"):
            silent_server(path).acquire()


def test_foreign_files_are_never_overwritten(tmp_dir):
    foreign = tmp_dir / "data" / "postgres" / "letter.txt"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("dear")
    with pytest.raises(EmbeddedDirectoryUnusable, match=rf"^{foreign.parent} .*DATABASE_URL"):
        silent_server(tmp_dir / "data").acquire()
    assert foreign.read_text() == "dear"


def test_without_programs_for_the_platform_the_error_names_database_url(tmp_dir, monkeypatch):
    monkeypatch.setattr(binaries, "FOLDER", "pginstall-of-no-platform")
    with pytest.raises(EmbeddedBinaryMissing, match="DATABASE_URL"):
        silent_server(tmp_dir / "data").acquire()


def test_a_server_that_cannot_start_says_why(copied_dir):
    (copied_dir / "postgres" / "global" / "pg_control").unlink()
    with pytest.raises(EmbeddedServerError, match=r"pg_control.*DATABASE_URL"):
        silent_server(copied_dir).acquire()


@only_root
def test_as_root_the_server_runs_as_nobody_and_opens_only_its_own_directory(tmp_dir):
    tmp_dir.chmod(0o711)
    given = tmp_dir / "given"
    given.mkdir(mode=0o700)
    with silent_server(given) as server:
        assert (given / "postgres").stat().st_uid == server.socket_dir.stat().st_uid != 0
        assert Path(f"/proc/{server_pid(given)}").stat().st_uid != 0
    assert stat.S_IMODE(given.stat().st_mode) == 0o711
    assert stat.S_IMODE(tmp_dir.stat().st_mode) == 0o711


@only_root
def test_as_root_a_directory_that_nobody_can_reach_is_refused_and_left_as_it_was(tmp_dir):
    closed = tmp_dir / "closed"
    closed.mkdir(mode=0o700)
    reason = rf"\bnobody\b.* {closed / 'data'}\. .*SITEATLAS_DATA_DIR"
    with pytest.raises(EmbeddedDirectoryUnusable, match=reason):
        silent_server(closed / "data").acquire()
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@only_root
def test_as_root_programs_that_nobody_can_reach_are_copied_next_to_the_data(tmp_dir, data_dir):
    closed = tmp_dir / "closed"
    closed.mkdir(mode=0o700)
    package = installed_programs().folder.parent
    for path in package.parent.glob(f"{package.name}*"):
        (closed / path.name).symlink_to(path)
    script = f"import sys; sys.path.insert(0, {str(closed)!r})\n{HOLD_UNTIL_INPUT}"
    user = start_client(data_dir, script)
    (program,) = Path(f"/proc/{server_pid(data_dir)}").glob("exe")
    assert program.readlink().is_relative_to(data_dir / "programs")
    user.finish()


@only_root
def test_an_ordinary_user_starts_and_stops_a_server(tmp_dir):
    if not server_user_for().may_enter(Path(installed_programs().path("postgres"))):
        pytest.skip("the installed programs are closed to other users")
    nobody = server_user_for()
    os.chown(tmp_dir, nobody.uid, nobody.gid)
    user = start_client(tmp_dir / "of" / "nobody", HOLD_AS_NOBODY)
    assert (tmp_dir / "of" / "nobody").stat().st_uid == nobody.uid
    assert stat.S_IMODE((tmp_dir / "of" / "nobody").stat().st_mode) == 0o700
    user.finish()
    assert not processes_naming(tmp_dir)
    with silent_server(tmp_dir / "of" / "nobody"):
        assert is_running(tmp_dir / "of" / "nobody")
    start_client(tmp_dir / "of" / "nobody", HOLD_AS_NOBODY).finish()


@only_root
def test_a_user_id_without_a_name_is_refused_before_anything_is_created(tmp_dir):
    os.chown(tmp_dir, 54321, 54321)
    user = ClientProcess(tmp_dir / "data", HOLD_AS_NOBODY.replace(*WITHOUT_NAME))
    _, errors = user.process.communicate(timeout=30)
    (error,) = re.findall(r"EmbeddedUserUnknown: (.*)", errors)
    assert "siteatlas:x:54321:54321:" in error
    assert "DATABASE_URL" in error
    assert not (tmp_dir / "data" / "postgres.new").exists()


@only_root
def test_a_full_disk_is_named_as_the_reason(tmp_dir):
    disk = tmp_dir / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=20m,mode=755", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount")
    try:
        with pytest.raises(EmbeddedDirectoryUnusable, match=r"\bfull\b.*DATABASE_URL"):
            silent_server(disk / "data").acquire()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.skipif(IS_ROOT, reason="root may write everywhere")
def test_a_directory_without_write_permission_is_refused(tmp_dir):
    tmp_dir.chmod(0o500)
    try:
        with pytest.raises(EmbeddedDirectoryUnusable, match="DATABASE_URL") as refused:
            silent_server(tmp_dir / "data").acquire()
        assert isinstance(refused.value.__cause__, PermissionError)
    finally:
        tmp_dir.chmod(0o700)
