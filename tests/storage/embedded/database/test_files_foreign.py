"""Root and a data directory of another user: nothing that this user puts there is obeyed."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from siteatlas.errors import (
    ConfigurationError,
    EmbeddedDirectoryUnusable,
    EmbeddedServerError,
)
from siteatlas.storage.embedded.files import (
    MAX_READ_BYTES,
    Postmaster,
    ServerUser,
    installed_programs,
    owned_sizes,
    programs_for,
    read_owned,
    server_user_for,
)
from siteatlas.storage.embedded.server import Cluster, Deadline, EmbeddedServer
from tests.fixtures.embedded import IS_ROOT, is_running, silent_server

only_root = pytest.mark.skipif(not IS_ROOT, reason="needs root, who alone has several users")
SECRET = "1\nsecret\n"


@pytest.fixture
def nobody() -> ServerUser:
    return server_user_for(named="nobody") if IS_ROOT else server_user_for()


@pytest.fixture
def secret(tmp_dir: Path) -> Path:
    path = tmp_dir / "secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    return path


@pytest.fixture
def foreign(tmp_dir: Path, nobody: ServerUser) -> Path:
    """A directory of another user below one of ours."""
    path = tmp_dir / "foreign"
    path.mkdir(mode=0o755)
    os.chown(path, nobody.uid, nobody.gid)
    return path


def put_link(path: Path, target: Path) -> None:
    path.symlink_to(target)


def put_hard_link(path: Path, target: Path) -> None:
    path.hardlink_to(target)


def put_pipe(path: Path, target: Path) -> None:
    os.mkfifo(path)


@only_root
@pytest.mark.parametrize("put", [put_link, put_hard_link, put_pipe])
def test_what_another_user_put_in_place_of_a_file_is_not_read(
    foreign: Path, secret: Path, put: Callable[[Path, Path], None]
):
    put(foreign / "file", secret)
    refusal = rf"^{foreign / 'file'} .*SITEATLAS_DATA_DIR"
    with pytest.raises(EmbeddedDirectoryUnusable, match=refusal):
        read_owned(foreign.parent, "foreign", "file")


@only_root
def test_a_directory_that_is_a_link_is_neither_read_nor_listed(
    tmp_dir: Path, foreign: Path, secret: Path
):
    (foreign / "log").symlink_to(tmp_dir)
    with pytest.raises(EmbeddedDirectoryUnusable):
        read_owned(foreign.parent, "foreign", "log", "secret")
    assert owned_sizes(foreign.parent, "foreign", "log", suffix="t") == {}


def test_links_of_our_own_are_followed(tmp_dir: Path, secret: Path):
    (tmp_dir / "elsewhere").mkdir(mode=0o755)
    (tmp_dir / "elsewhere" / "file").symlink_to(secret)
    (tmp_dir / "link").symlink_to(tmp_dir / "elsewhere")
    assert read_owned(tmp_dir, "link", "file") == SECRET
    assert owned_sizes(tmp_dir, "link", suffix="le") == {"file": len(str(secret))}


def test_only_the_last_part_of_a_large_file_is_read(tmp_dir: Path):
    (tmp_dir / "file").write_text("a" * MAX_READ_BYTES + "the end")
    said = read_owned(tmp_dir, "file")
    assert len(said) == MAX_READ_BYTES
    assert said.endswith("athe end")
    assert read_owned(tmp_dir, "file", start=MAX_READ_BYTES + 4) == "end"


@only_root
def test_no_file_of_the_cluster_leads_root_elsewhere(copied_dir: Path, secret: Path):
    cluster = Cluster(copied_dir, lambda _: None)
    user = cluster.user
    lock_file, version = cluster.path / "postmaster.pid", cluster.path / "PG_VERSION"
    lock_file.symlink_to(secret)
    with pytest.raises(EmbeddedDirectoryUnusable):
        Postmaster.of(cluster.path)
    leftover = Postmaster(cluster.path, os.getpid(), copied_dir / "run", "ready")
    with pytest.raises(EmbeddedServerError, match=rf"^{lock_file} "):
        cluster._clear(leftover, copied_dir / "run", user)
    assert secret.read_text() == SECRET
    version.unlink()
    version.symlink_to(secret)
    with pytest.raises(EmbeddedDirectoryUnusable) as refused:
        cluster.serve()
    assert "secret" not in str(refused.value).replace(str(secret), "")


@only_root
def test_the_reason_of_a_failed_start_comes_from_no_linked_log(copied_dir: Path, tmp_dir: Path):
    cluster = Cluster(copied_dir, lambda _: None)
    cluster._start_log.write_text("")
    logs = tmp_dir / "logs"
    logs.mkdir(mode=0o700)
    (logs / "a.log").write_text("secret")
    subprocess.run(["rm", "-r", str(cluster.path / "log")], check=True)
    (cluster.path / "log").symlink_to(logs)
    with pytest.raises(EmbeddedServerError) as failure:
        cluster._judge_failed_start({}, Deadline(lambda _: None, 1))
    assert "secret" not in str(failure.value)


@only_root
def test_programs_are_not_copied_through_a_link(foreign: Path, tmp_dir: Path, nobody: ServerUser):
    closed = tmp_dir / "closed"
    closed.mkdir(mode=0o700)
    (closed / "key").touch(mode=0o600)
    (foreign / "programs").symlink_to(closed)
    installed = installed_programs().folder.parent
    if nobody.may_enter(installed):
        pytest.skip("the installed programs need no copy")
    with pytest.raises(NotADirectoryError):
        programs_for(nobody, foreign)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert [path.name for path in closed.iterdir()] == ["key"]
    assert stat.S_IMODE((closed / "key").stat().st_mode) == 0o600


@only_root
def test_a_file_with_content_is_not_given_away_as_a_lock_file(foreign: Path, secret: Path):
    secret.rename(foreign / "server.lock")
    handle = EmbeddedServer(foreign)._open_lock("server.lock")
    os.close(handle)
    assert (foreign / "server.lock").stat().st_uid == 0


@only_root
def test_a_named_user_runs_the_server(tmp_dir: Path):
    daemon = pwd.getpwnam("daemon")
    server = EmbeddedServer(tmp_dir / "data", announce=lambda _: None, user_name="daemon")
    with server:
        assert (tmp_dir / "data" / "postgres").stat().st_uid == daemon.pw_uid
    with silent_server(tmp_dir / "data"):
        assert is_running(tmp_dir / "data")
    with pytest.raises(EmbeddedDirectoryUnusable, match=r"\bdaemon\b.*chown -R nobody "):
        EmbeddedServer(tmp_dir / "data", user_name="nobody").acquire()


@only_root
@pytest.mark.parametrize("name", ["no-such-user", "root"])
def test_a_user_that_cannot_run_the_server_is_refused(tmp_dir: Path, name: str):
    with pytest.raises(ConfigurationError, match=rf"^SITEATLAS_SERVER_USER .*\b{name}\b"):
        EmbeddedServer(tmp_dir / "data", user_name=name).acquire()
