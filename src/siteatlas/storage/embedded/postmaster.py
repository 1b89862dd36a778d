"""The running server according to `postmaster.pid` and the operating system."""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from siteatlas.storage.embedded.owned_files import read_owned

PORT = 5432
SOCKET_NAME = f".s.PGSQL.{PORT}"
LOCK_FILE = "postmaster.pid"
LOCK_FILE_LINES = 8
CONNECT_SECONDS = 5
# Higher than any process id: PostgreSQL takes a lock file that names it for a leftover.
NO_PROCESS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Postmaster:
    """The first process of a server, which accepts the connections."""

    cluster: Path
    pid: int
    socket_dir: Path
    status: str

    @classmethod
    def of(cls, cluster: Path) -> Self | None:
        """The server process in the lock file of a data directory, whether it runs or not."""
        try:
            text = read_owned(cluster.parent, cluster.name, LOCK_FILE)
        except FileNotFoundError:
            return None
        lines = [line.strip() for line in text.splitlines()]
        lines += [""] * (LOCK_FILE_LINES - len(lines))
        pid = int(lines[0]) if lines[0].isdecimal() else NO_PROCESS
        pid = pid if 1 < pid < NO_PROCESS else NO_PROCESS
        return cls(cluster, pid, Path(lines[4]), lines[7])

    @property
    def accepts_connections(self) -> bool:
        """Whether a client would be served now. Needs no program and about a millisecond."""
        if self.status != "ready" or not self.lives or not self._owns_socket_directory():
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(CONNECT_SECONDS)
            try:
                connection.connect(str(self.socket_dir / SOCKET_NAME))
            except OSError:
                return False
        return True

    def _owns_socket_directory(self) -> bool:
        """Whether nobody else can have put a socket there, posing as the database."""
        try:
            about, owner = self.socket_dir.lstat(), self.cluster.stat().st_uid
        except OSError:
            return False
        return stat.S_ISDIR(about.st_mode) and about.st_uid == owner and not about.st_mode & 0o077

    @property
    def lives(self) -> bool:
        """Whether the process is alive and can be the server of this data directory.

        After a restart of a machine or container the id may belong to any other program.
        """
        if not process_lives(self.pid):
            return False
        try:
            arguments = Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return process_lives(self.pid)
        if arguments[0].rpartition(b"/")[2] != b"postgres":
            return False
        given = arguments[arguments.index(b"-D") + 1] if b"-D" in arguments[:-1] else b""
        return not given.startswith(b"/") or given == os.fsencode(self.cluster)


def process_exists(pid: int) -> bool:
    """Whether this process exists, possibly as a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def process_lives(pid: int) -> bool:
    """Whether there is such a process and it has not ended."""
    if not process_exists(pid):
        return False
    try:
        about = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return process_exists(pid)
    return about.rpartition(")")[2].split()[0] not in {"Z", "X"}
