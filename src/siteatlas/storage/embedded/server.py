"""The embedded PostgreSQL, shared by all commands that use the same data directory.

`EmbeddedServer` owns who uses the server and when it stops; `Cluster` creates its data directory,
starts it, waits until it is ready, and explains why it did not start. What is left of a server that
was killed is cleared before the next one starts.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from siteatlas.errors import (
    EmbeddedDirectoryUnusable,
    EmbeddedServerError,
    EmbeddedVersionMismatch,
)
from siteatlas.logs import get_logger
from siteatlas.storage.embedded.files import (
    MAJOR_VERSION,
    NO_PROCESS,
    PORT,
    REMEDY,
    SOCKET_NAME,
    Postmaster,
    Programs,
    ServerUser,
    check_reach,
    directory_faults,
    installed_programs,
    make_data_dir,
    make_private,
    make_socket_directory,
    owned_sizes,
    process_exists,
    process_lives,
    programs_for,
    read_owned,
    says_disk_full,
    server_user_for,
)

DATABASE = "siteatlas"
START_SECONDS = 300
STOP_SECONDS = 120
MESSAGE_INTERVAL_SECONDS = 5

FIRST_STATEMENTS = f"""\
CREATE ROLE {DATABASE} LOGIN CREATEDB IN ROLE pg_monitor, pg_checkpoint, pg_signal_backend
CREATE DATABASE {DATABASE} OWNER {DATABASE}
"""

log = get_logger("storage")


def announce_to_log(text: str) -> None:
    """Log what the embedded server is doing."""
    log.info("embedded_server", text=text)


class EmbeddedServer:
    """A PostgreSQL server that Siteatlas runs, started by its first user and stopped by its last.

    `server.lock` is held while a process starts or stops the server. `users.lock` is held shared
    by every process that uses it, so that a killed process is no longer counted; the process that
    gets it exclusively is the last. A server left without users is found by its socket and reused.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        announce: Callable[[str], None] = announce_to_log,
        user_name: str | None = None,
        programs: Programs | None = None,
    ) -> None:
        self.data_dir = data_dir.expanduser().resolve()
        self._announce = announce
        self._cluster = Cluster(self.data_dir, announce, user_name, programs)
        self._count = 0
        self._users: int | None = None
        self._socket_dir: Path | None = None
        self._one_thread = threading.Lock()
        _servers.add(self)

    def acquire(self) -> str:
        """Start or join the server; return its SQLAlchemy address. May be called repeatedly."""
        with self._one_thread, directory_faults(self.data_dir):
            make_data_dir(self.data_dir)
            with self._mutex():
                self._socket_dir = self._serve_as_user()
                self._count += 1
        return self.url

    def revive(self) -> bool:
        """Restart the server if it ended while in use; return whether it had."""
        with self._one_thread, directory_faults(self.data_dir):
            if self._count == 0 or self._cluster.runs:
                return False
            with self._mutex():
                self._cluster.serve()
        return True

    def release(self) -> None:
        """Undo one `acquire`. The last user of all processes stops the server."""
        with self._one_thread:
            if self._count == 0:
                return
            self._count -= 1
            if self._count:
                return
            try:
                with directory_faults(self.data_dir), self._mutex():
                    self._leave()
            except EmbeddedServerError as error:
                log.warning("embedded_server_not_released", reason=error.message)
            finally:
                self._close_users()  # also when the mutex could not be had

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    @property
    def socket_dir(self) -> Path:
        """The directory of the server's Unix socket, private to its user."""
        if self._socket_dir is None:
            raise EmbeddedServerError("The embedded PostgreSQL has not been acquired.")
        return self._socket_dir

    @property
    def url(self) -> str:
        """The address for SQLAlchemy; it includes the port, so that PGPORT cannot change it."""
        host = quote(str(self.socket_dir), safe="")
        return f"postgresql+asyncpg://{DATABASE}@/{DATABASE}?host={host}&port={PORT}"

    @property
    def server_version(self) -> str:
        """The version of the installed PostgreSQL programs, such as `18.4`."""
        return installed_programs().version()

    @contextlib.contextmanager
    def _mutex(self) -> Iterator[None]:
        handle = self._open_lock("server.lock")
        deadline = Deadline(self._announce, START_SECONDS + STOP_SECONDS)
        try:
            while not _try_lock(handle, fcntl.LOCK_EX):
                if not deadline.wait("Another command is starting or stopping PostgreSQL"):
                    raise EmbeddedServerError(
                        f"Another command has held {self.data_dir / 'server.lock'} for too long. "
                        "Stop it and try again."
                    )
            yield
        finally:
            _unlock(handle)

    def _open_lock(self, name: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(self.data_dir / name, flags, 0o600)
        user, about = self._cluster.user, os.fstat(handle)
        # A lock file is empty: the owner of the directory may have put a file of root there.
        is_new = about.st_nlink == 1 and about.st_size == 0
        if about.st_uid == os.geteuid() != user.uid and is_new:
            os.fchown(handle, user.uid, user.gid)
        return handle

    def _serve_as_user(self) -> Path:
        """Register this process as a user of the embedded server and start it if needed."""
        if self._users is not None:
            return self._cluster.serve()
        self._users = self._open_lock("users.lock")
        try:
            if not _try_lock(self._users, fcntl.LOCK_SH):
                users = self.data_dir / "users.lock"
                raise EmbeddedServerError(f"Another program has locked {users}.")
            return self._cluster.serve()
        except EmbeddedServerError:
            # Either there is no server, or it recovers from a crash and must not be disturbed.
            self._close_users()
            raise
        except BaseException:
            self._leave()
            raise

    def _leave(self) -> None:
        try:
            if self._users is not None and _try_lock(self._users, fcntl.LOCK_EX):
                self._cluster.stop()
        finally:
            self._close_users()

    def _close_users(self) -> None:
        if self._users is not None:
            _unlock(self._users)
            self._users = None

    def _leave_to_parent(self) -> None:
        """In a forked child: leave the server to the parent; the child may call `acquire`."""
        # Closing is harmless to the parent; unlocking would take its lock away.
        if self._users is not None:
            os.close(self._users)
        self._count, self._users, self._socket_dir = 0, None, None
        self._one_thread = threading.Lock()


def _try_lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EWOULDBLOCK, errno.EAGAIN}:
            return False
        raise
    return True


def _unlock(handle: int) -> None:
    # Unlocked by name, since a child of ours may hold a copy of the handle for a moment.
    fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


_servers: weakref.WeakSet[EmbeddedServer] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for server in list(_servers):
        server._leave_to_parent()  # noqa: SLF001


os.register_at_fork(after_in_child=_leave_all_to_parent)


class Cluster:
    """The data directory of the embedded server and the processes on it."""

    def __init__(
        self,
        data_dir: Path,
        announce: Callable[[str], None],
        user_name: str | None = None,
        programs: Programs | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.path = data_dir / "postgres"
        self._start_log = data_dir / "postgres.log"
        self._announce = announce
        self._user_name = user_name
        # Those of the major version that wrote the directory, if that is not the current one.
        self._programs = programs

    @property
    def user(self) -> ServerUser:
        """The system user that owns the files and runs the server."""
        return server_user_for(self.path, self.data_dir, named=self._user_name)

    @property
    def runs(self) -> bool:
        """Whether there is a server process, ready or not."""
        found = Postmaster.of(self.path)
        return found is not None and found.lives

    def serve(self) -> Path:
        """Make sure that the server accepts connections; return the directory of its socket."""
        self._check_version()
        deadline = Deadline(self._announce, START_SECONDS)
        starting = "Waiting for PostgreSQL to start"
        recovering = "Waiting for PostgreSQL to recover from a crash"
        while True:
            found = Postmaster.of(self.path)
            if found and found.accepts_connections:
                return found.socket_dir
            if found and found.lives:
                self._await_ready(found.pid, deadline, waiting_for=starting)
                continue
            logged = self._log_sizes()
            # The server removes its lock file when it stops: one without a process is a crash.
            waiting_for = starting if found is None else recovering
            if not self._await_ready(self._start(found), deadline, waiting_for=waiting_for):
                self._judge_failed_start(logged, deadline)

    def stop(self) -> None:
        """Stop the server and all its connections, if it runs."""
        found = Postmaster.of(self.path)
        if found is None or not found.lives:
            return
        self.user.run_script('kill -INT "$1"', str(found.pid))
        deadline = Deadline(self._announce, STOP_SECONDS)
        while process_lives(found.pid):
            if not deadline.wait("Waiting for PostgreSQL to shut down"):
                log.warning("embedded_server_still_stopping", pid=found.pid)
                return
        if found.socket_dir.parent != self.data_dir:
            self.user.remove_directory(found.socket_dir)

    def _check_version(self) -> None:
        written_by = self.written_major()
        if self._programs is None and written_by not in {None, str(MAJOR_VERSION)}:
            raise EmbeddedVersionMismatch(
                f"{self.path} was written by PostgreSQL {written_by}, but this version of "
                f"siteatlas brings PostgreSQL {MAJOR_VERSION}. Convert it with: "
                f"siteatlas db upgrade-server. {REMEDY}"
            )

    def written_major(self) -> str | None:
        """The major version of PostgreSQL that wrote the data directory; None if it is new."""
        try:
            return read_owned(self.data_dir, self.path.name, "PG_VERSION").strip()
        except FileNotFoundError:
            return None

    def _start(self, leftover: Postmaster | None) -> int:
        user = self.user
        is_new = not (self.path / "PG_VERSION").exists()
        if is_new:
            user.require_name()
        check_reach(self.data_dir, user)
        programs = self._programs or programs_for(user, self.data_dir)
        socket_dir = make_socket_directory(self.data_dir, user)
        self._write_settings(socket_dir)
        if is_new:
            self._initialise(user, programs)
        self._announce("Starting the embedded PostgreSQL")
        self._clear(leftover, socket_dir, user)
        self._start_log.unlink(missing_ok=True)
        with self._start_log.open("xb") as start_log:
            if user.is_other:
                os.fchown(start_log.fileno(), user.uid, user.gid)
            command = [programs.path("postgres"), "-D", str(self.path)]
            return user.run_detached(command, start_log)

    def _write_settings(self, socket_dir: Path) -> None:
        target = self.data_dir / "siteatlas.conf"
        fresh = target.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with fresh.open("x", encoding="utf-8") as file:
            file.write(_settings(socket_dir))
            os.fchmod(file.fileno(), 0o644)
        fresh.replace(target)

    def _initialise(self, user: ServerUser, programs: Programs) -> None:
        if self.path.exists() and any(self.path.iterdir()):
            raise EmbeddedDirectoryUnusable(
                f"{self.path} contains files that are not a PostgreSQL data directory. {REMEDY}"
            )
        self._announce(f"Setting up the embedded PostgreSQL in {self.data_dir}")
        fresh = self.path.with_suffix(".new")
        if fresh.exists():
            shutil.rmtree(fresh)
        make_private(fresh, user)
        initdb = [programs.path("initdb"), "-D", str(fresh), "--username=postgres"]
        initdb += ["--auth-local=trust", "--auth-host=reject", "--encoding=UTF8"]
        initdb += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        initdb += ["--data-checksums", "--no-instructions"]
        self._run(user, initdb)
        user.write(fresh / "postgresql.conf", "include '../siteatlas.conf'\n", append=True)
        single = [programs.path("postgres"), "--single", "-D", str(fresh), "postgres"]
        self._run(user, single, stdin=FIRST_STATEMENTS)
        fresh.rename(self.path)

    def _run(self, user: ServerUser, command: list[str], *, stdin: str = "") -> None:
        done = user.run(command, stdin=stdin)
        if done.returncode or re.search(r"\b(?:ERROR|FATAL|PANIC): ", done.stderr):
            raise self._failure(done.stderr)

    def _clear(self, leftover: Postmaster | None, socket_dir: Path, user: ServerUser) -> None:
        """Remove lock files that name a process which is not our server.

        `postmaster.pid` stays, under an impossible id: it also tells PostgreSQL how to find out
        whether processes of the dead server still use its memory.
        """
        if leftover and process_exists(leftover.pid):
            user.replace_first_line(self.path / "postmaster.pid", str(NO_PROCESS))
        user.remove(socket_dir / SOCKET_NAME, socket_dir / f"{SOCKET_NAME}.lock")

    def _await_ready(self, pid: int, deadline: Deadline, *, waiting_for: str) -> bool:
        while process_lives(pid):
            found = Postmaster.of(self.path)
            if found and found.accepts_connections:
                return True
            if not deadline.wait(waiting_for):
                raise EmbeddedServerError(
                    f"PostgreSQL is not ready after {START_SECONDS} seconds. It goes on starting "
                    f"(see {self.path / 'log'}); try again later."
                )
        return False

    def _judge_failed_start(self, logged: dict[str, int], deadline: Deadline) -> None:
        """Return if another attempt is worthwhile; otherwise raise the reason for the failure."""
        said = self._read_log_since(0, self._start_log.name)
        for name in self._log_sizes():
            said += self._read_log_since(logged.get(name, 0), self.path.name, "log", name)
        waiting_for = "Waiting for the processes of a killed PostgreSQL to end"
        is_held_up = "pre-existing shared memory block" in said or _was_killed(said)
        if not is_held_up or not deadline.wait(waiting_for, seconds=0.1):
            raise self._failure(said)

    def _log_sizes(self) -> dict[str, int]:
        return owned_sizes(self.data_dir, self.path.name, "log", suffix=".log")

    def _read_log_since(self, start: int, *names: str) -> str:
        try:
            return read_owned(self.data_dir, *names, start=start)
        except (OSError, EmbeddedDirectoryUnusable):
            return ""

    def _failure(self, said: str) -> EmbeddedServerError:
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        reason = " / ".join(lines[-4:]) or "no reason was given."
        if says_disk_full(said):
            return EmbeddedDirectoryUnusable(
                f"The disk of {self.data_dir} is full. Free some space and try again. {REMEDY}"
            )
        if re.search("Permission denied|Read-only file system|Operation not permitted", said):
            return EmbeddedDirectoryUnusable(
                f"The embedded PostgreSQL cannot use {self.data_dir}: {reason} {REMEDY}"
            )
        return EmbeddedServerError(
            f"The embedded PostgreSQL cannot be started: {reason} "
            "Set DATABASE_URL to use another PostgreSQL server."
        )


def _was_killed(said: str) -> bool:
    """Whether a server that ended had begun to start or to recover, and gave no reason itself."""
    own = re.sub(r"FATAL:  (?:the database system is|terminating) .*", "", said)
    return "LOG:  " in own and not re.search(r"FATAL|PANIC|ERROR|could not", own)


def _settings(socket_dir: Path) -> str:
    return f"""\
# Written at every start; changes belong into postgres/postgresql.conf, below its include line.
listen_addresses = ''
port = {PORT}
unix_socket_directories = '"{socket_dir}"'
unix_socket_permissions = 0700
max_connections = 200
shared_buffers = 128MB
fsync = on
full_page_writes = on
synchronous_commit = on
max_wal_size = 2GB
wal_init_zero = off
checkpoint_timeout = 15min
checkpoint_completion_target = 0.9
autovacuum = on
jit = off
timezone = 'UTC'
logging_collector = on
log_directory = 'log'
log_filename = 'postgres-%a.log'
log_rotation_age = 1d
log_rotation_size = 0
log_truncate_on_rotation = on
log_timezone = 'UTC'
log_checkpoints = off
"""


def written_major(data_dir: Path) -> str | None:
    """The major version of PostgreSQL that wrote a data directory; None if there is no database."""
    return Cluster(data_dir, announce_to_log).written_major()


class Deadline:
    """Waits in small steps up to a limit, with a word every few seconds."""

    def __init__(self, announce: Callable[[str], None], seconds: float) -> None:
        self._announce = announce
        self._began = time.monotonic()
        self._limit = seconds
        self._next_word = float(MESSAGE_INTERVAL_SECONDS)

    def wait(self, waiting_for: str, *, seconds: float = 0.01) -> bool:
        """Sleep a moment; False when the time is up."""
        time.sleep(seconds)
        waited = time.monotonic() - self._began
        if waited >= self._next_word:
            self._next_word += MESSAGE_INTERVAL_SECONDS
            self._announce(f"{waiting_for} ({waited:.0f} s so far)")
        return waited < self._limit
