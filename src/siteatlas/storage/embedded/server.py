"""The embedded PostgreSQL, shared by all commands that use the same data directory.

Owns who uses the server and when it stops; `cluster` creates and starts it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from siteatlas.errors import EmbeddedServerError
from siteatlas.logs import get_logger
from siteatlas.storage.embedded.binaries import Programs, installed_programs
from siteatlas.storage.embedded.cluster import DATABASE, START_SECONDS, STOP_SECONDS, Cluster
from siteatlas.storage.embedded.deadline import Deadline
from siteatlas.storage.embedded.filesystem import directory_faults, make_data_dir
from siteatlas.storage.embedded.postmaster import PORT

MUTEX = "server.lock"
USERS = "users.lock"

log = get_logger("storage")


def announce_to_log(text: str) -> None:
    """Log what the embedded server is doing."""
    log.info("embedded_server", text=text)


def written_major(data_dir: Path) -> str | None:
    """The major version of PostgreSQL that wrote a data directory; None if there is no database."""
    return Cluster(data_dir, announce_to_log).written_major()


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
        """Hold the lock under which one process at a time starts or stops the embedded server."""
        handle = self._open_lock(MUTEX)
        deadline = Deadline(self._announce, START_SECONDS + STOP_SECONDS)
        try:
            while not _try_lock(handle, fcntl.LOCK_EX):
                if not deadline.wait("Another command is starting or stopping PostgreSQL"):
                    raise EmbeddedServerError(
                        f"Another command has held {self.data_dir / MUTEX} for too long. "
                        "Stop it and try again."
                    )
            yield
        finally:
            _unlock(handle)

    def _open_lock(self, name: str) -> int:
        """Open a lock file in the data directory, owned by the server's user."""
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
        self._users = self._open_lock(USERS)
        try:
            if not _try_lock(self._users, fcntl.LOCK_SH):
                raise EmbeddedServerError(f"Another program has locked {self.data_dir / USERS}.")
            return self._cluster.serve()
        except EmbeddedServerError:
            # Either there is no server, or it recovers from a crash and must not be disturbed.
            self._close_users()
            raise
        except BaseException:
            self._leave()
            raise

    def _leave(self) -> None:
        """Stop using the embedded server; stop it if no other process uses it."""
        try:
            if self._users is not None and _try_lock(self._users, fcntl.LOCK_EX):
                self._cluster.stop()
        finally:
            self._close_users()

    def _close_users(self) -> None:
        """Release the lock that counts this process among the users of the embedded server."""
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


_servers: weakref.WeakSet[EmbeddedServer] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    """After a fork, in the child: leave all embedded servers to the parent process."""
    for server in list(_servers):
        server._leave_to_parent()  # noqa: SLF001


os.register_at_fork(after_in_child=_leave_all_to_parent)


def _unlock(handle: int) -> None:
    """Release and close a lock file of the embedded server."""
    # Unlocked by name, since a child of ours may hold a copy of the handle for a moment.
    fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


def _try_lock(handle: int, kind: int) -> bool:
    """Try to lock a lock file of the embedded server; return whether it was free."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EWOULDBLOCK, errno.EAGAIN}:
            return False
        raise
    return True
