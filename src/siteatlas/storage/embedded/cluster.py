"""One PostgreSQL data directory: created, started, awaited and stopped.

Callers must ensure that only one process at a time uses this; see `server`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from siteatlas.errors import (
    EmbeddedDirectoryUnusable,
    EmbeddedServerError,
    EmbeddedVersionMismatch,
)
from siteatlas.logs import get_logger
from siteatlas.storage.embedded.binaries import MAJOR_VERSION, Programs, programs_for
from siteatlas.storage.embedded.deadline import Deadline
from siteatlas.storage.embedded.filesystem import (
    DISK_FULL,
    check_reach,
    make_private,
    make_socket_directory,
)
from siteatlas.storage.embedded.owned_files import REMEDY, owned_sizes, read_owned
from siteatlas.storage.embedded.postmaster import (
    LOCK_FILE,
    NO_PROCESS,
    PORT,
    SOCKET_NAME,
    Postmaster,
    process_exists,
    process_lives,
)
from siteatlas.storage.embedded.server_user import SHELL, ServerUser, server_user_for

DATABASE = "siteatlas"
LOGS = "log"
START_SECONDS = 300
STARTING = "Waiting for PostgreSQL to start"
RECOVERING = "Waiting for PostgreSQL to recover from a crash"
STOP_SECONDS = 120
ORPHANS_PAUSE_SECONDS = 0.1
NOT_ALLOWED = re.compile("Permission denied|Read-only file system|Operation not permitted")
ORPHANS_LEFT = "pre-existing shared memory block"
FAULT = re.compile(r"\b(?:ERROR|FATAL|PANIC): ")
SETTINGS = """\
# Written at every start; changes belong into postgres/postgresql.conf, below its include line.
listen_addresses = ''
port = {port}
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
FIRST_STATEMENTS = f"""\
CREATE ROLE {DATABASE} LOGIN CREATEDB IN ROLE pg_monitor, pg_checkpoint, pg_signal_backend
CREATE DATABASE {DATABASE} OWNER {DATABASE}
"""

log = get_logger("storage")


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
        while True:
            found = Postmaster.of(self.path)
            if found and found.accepts_connections:
                return found.socket_dir
            if found and found.lives:
                self._await_ready(found.pid, deadline, waiting_for=STARTING)
                continue
            logged = self._log_sizes()
            # The server removes its lock file when it stops: one without a process is a crash.
            waiting_for = STARTING if found is None else RECOVERING
            if not self._await_ready(self._start(found), deadline, waiting_for=waiting_for):
                self._judge_failed_start(logged, deadline)

    def stop(self) -> None:
        """Stop the server and all its connections, if it runs."""
        found = Postmaster.of(self.path)
        if found is None or not found.lives:
            return
        self.user.run([SHELL, "-c", 'kill -INT "$1"', SHELL, str(found.pid)])
        deadline = Deadline(self._announce, STOP_SECONDS)
        while process_lives(found.pid):
            if not deadline.wait("Waiting for PostgreSQL to shut down"):
                log.warning("embedded_server_still_stopping", pid=found.pid)
                return
        if found.socket_dir.parent != self.data_dir:
            self.user.remove_directory(found.socket_dir)

    def _check_version(self) -> None:
        """Refuse a data directory that another major version of PostgreSQL wrote."""
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
        """Start the embedded PostgreSQL, with initdb if it is new; return its process id."""
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
        """Write the configuration file of the embedded PostgreSQL."""
        target = self.data_dir / "siteatlas.conf"
        fresh = target.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with fresh.open("x", encoding="utf-8") as file:
            file.write(SETTINGS.format(port=PORT, socket_dir=socket_dir))
            os.fchmod(file.fileno(), 0o644)
        fresh.replace(target)

    def _initialise(self, user: ServerUser, programs: Programs) -> None:
        """Create the data directory with its role and database; it gets its name when complete."""
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
        """Run a PostgreSQL program as the server user; raise EmbeddedServerError if it fails."""
        done = user.run(command, stdin=stdin)
        if done.returncode or FAULT.search(done.stderr):
            raise self._failure(done.stderr)

    def _clear(self, leftover: Postmaster | None, socket_dir: Path, user: ServerUser) -> None:
        """Remove lock files that name a process which is not our server.

        `postmaster.pid` stays, under an impossible id: it also tells PostgreSQL how to find out
        whether processes of the dead server still use its memory.
        """
        if leftover and process_exists(leftover.pid):
            user.replace_first_line(self.path / LOCK_FILE, str(NO_PROCESS))
        user.remove(socket_dir / SOCKET_NAME, socket_dir / f"{SOCKET_NAME}.lock")

    def _await_ready(self, pid: int, deadline: Deadline, *, waiting_for: str) -> bool:
        """True once the server accepts connections; False when its process ended."""
        while process_lives(pid):
            found = Postmaster.of(self.path)
            if found and found.accepts_connections:
                return True
            if not deadline.wait(waiting_for):
                raise EmbeddedServerError(
                    f"PostgreSQL is not ready after {START_SECONDS} seconds. It goes on starting "
                    f"(see {self.path / LOGS}); try again later."
                )
        return False

    def _judge_failed_start(self, logged: dict[str, int], deadline: Deadline) -> None:
        """Return if another attempt is worthwhile; otherwise raise the reason for the failure."""
        said = self._read_log_since(0, self._start_log.name)
        for name in self._log_sizes():
            said += self._read_log_since(logged.get(name, 0), self.path.name, LOGS, name)
        waiting_for = "Waiting for the processes of a killed PostgreSQL to end"
        if ORPHANS_LEFT not in said or not deadline.wait(
            waiting_for, seconds=ORPHANS_PAUSE_SECONDS
        ):
            raise self._failure(said)

    def _log_sizes(self) -> dict[str, int]:
        """The sizes of the PostgreSQL log files, by name."""
        return owned_sizes(self.data_dir, self.path.name, LOGS, suffix=".log")

    def _read_log_since(self, start: int, *names: str) -> str:
        """The text of a PostgreSQL log file from the offset `start` on; empty if unreadable."""
        try:
            return read_owned(self.data_dir, *names, start=start)
        except (OSError, EmbeddedDirectoryUnusable):
            return ""

    def _failure(self, said: str) -> EmbeddedServerError:
        """The error for a PostgreSQL program that failed, by what it logged."""
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        reason = " / ".join(lines[-4:]) or "no reason was given."
        if DISK_FULL.search(said):
            return EmbeddedDirectoryUnusable(
                f"The disk of {self.data_dir} is full. Free some space and try again. {REMEDY}"
            )
        if NOT_ALLOWED.search(said):
            return EmbeddedDirectoryUnusable(
                f"The embedded PostgreSQL cannot use {self.data_dir}: {reason} {REMEDY}"
            )
        return EmbeddedServerError(
            f"The embedded PostgreSQL cannot be started: {reason} "
            "Set DATABASE_URL to use another PostgreSQL server."
        )
