"""The system user that runs the embedded PostgreSQL, and running programs as that user."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from siteatlas.errors import (
    ConfigurationError,
    EmbeddedBinaryMissing,
    EmbeddedDirectoryUnusable,
    EmbeddedServerError,
    EmbeddedUserUnknown,
)

SHELL = "/bin/sh"
MAX_RUN_SECONDS = 600
# Nothing of the caller's environment: PGPORT, PGOPTIONS or a locale would change what runs.
CLEAN_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
UNPRIVILEGED = ("siteatlas", "nobody", "postgres", "daemon")


@dataclass(frozen=True, slots=True)
class ServerUser:
    """Who owns the database files. Only root runs programs as another user."""

    uid: int
    gid: int
    name: str

    @property
    def is_other(self) -> bool:
        """Whether this is not the user of the current process."""
        return self.uid != os.geteuid()

    def require_name(self) -> None:
        """Refuse a user without an entry in the user database: `initdb` looks it up."""
        if _known_user(self.uid) is None:
            raise EmbeddedUserUnknown(
                f"The user id {self.uid} has no entry in /etc/passwd, and PostgreSQL needs one to "
                "make a database. Run the container as a user of the image (10001), add an entry "
                f"(siteatlas:x:{self.uid}:{self.gid}::/data:/sbin/nologin), or set DATABASE_URL to "
                "use another PostgreSQL server."
            )

    def run(self, command: Sequence[str], *, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program to its end, away from the terminal, with a clean environment."""
        return self._run(command, stdin=stdin, stderr=subprocess.PIPE)

    def run_detached(self, command: Sequence[str], log: IO[bytes]) -> int:
        """Start a program that outlives this process, logging to `log`; return its process id.

        The shell in between ends at once, so that a server that dies is reaped by init and
        not kept as a zombie by us.
        """
        through_shell = [SHELL, "-c", '"$@" >&2 </dev/null & echo $!', SHELL, *command]
        return int(self._run(through_shell, stdin="", stderr=log).stdout)

    def may_enter(self, path: Path) -> bool:
        """Whether this user can reach and execute (a directory: traverse) the path."""
        return self.run([SHELL, "-c", 'test -x "$1"', SHELL, str(path)]).returncode == 0

    def write(self, path: Path, text: str, *, append: bool = False) -> None:
        """Write a file with the rights of this user, never with those of root."""
        script = 'cat >>"$1"' if append else 'cat >"$1"'
        done = self.run([SHELL, "-c", script, SHELL, str(path)], stdin=text)
        if done.returncode:
            raise EmbeddedServerError(f"{path} cannot be written: {done.stderr.strip()}")

    def replace_first_line(self, path: Path, line: str) -> None:
        """Change the first line of a file, read and written with the rights of this user."""
        script = '{ echo "$2"; tail -n +2 "$1"; } >"$1.new" && mv -f "$1.new" "$1"'
        done = self.run([SHELL, "-c", script, SHELL, str(path), line])
        if done.returncode:
            raise EmbeddedServerError(f"{path} cannot be written: {done.stderr.strip()}")

    def remove(self, *paths: Path) -> None:
        """Remove files, if they are there and this user may."""
        self.run([SHELL, "-c", 'rm -f -- "$@"', SHELL, *map(str, paths)])

    def remove_directory(self, path: Path) -> None:
        """Remove a directory, if it is empty and this user may."""
        self.run([SHELL, "-c", 'rmdir -- "$1"', SHELL, str(path)])

    def _run(
        self, command: Sequence[str], *, stdin: str, stderr: int | IO[bytes]
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as the server user, with a timeout and a clean environment."""
        try:
            return subprocess.run(
                command,
                input=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
                errors="replace",
                env=CLEAN_ENVIRONMENT,
                cwd="/",
                umask=0o077,
                start_new_session=True,
                timeout=MAX_RUN_SECONDS,
                check=False,
                user=self.uid if self.is_other else None,
                group=self.gid if self.is_other else None,
                extra_groups=[] if self.is_other else None,
            )
        except OSError as error:
            raise self._cannot_run(command[0], error) from error
        except subprocess.TimeoutExpired as error:
            raise EmbeddedServerError(
                f"{command[0]} did not end within {MAX_RUN_SECONDS} seconds. "
                "Set DATABASE_URL to use another PostgreSQL server."
            ) from error

    def _cannot_run(self, program: str, error: OSError) -> EmbeddedServerError:
        """The error for a program that the server user could not start."""
        if self.is_other and program == SHELL:
            return EmbeddedServerError(
                f"Root cannot become the user {self.name} here ({error.strerror}), and PostgreSQL "
                "refuses to run as root. Run siteatlas as an ordinary user, or set DATABASE_URL."
            )
        return EmbeddedBinaryMissing(
            f"{program} cannot be run on this machine: {error.strerror}. "
            "Set DATABASE_URL to use another PostgreSQL server."
        )


def process_user() -> ServerUser:
    """The user of the current process."""
    return ServerUser(os.geteuid(), os.getegid(), str(os.geteuid()))


def server_user_for(*places: Path, named: str | None = None) -> ServerUser:
    """The user that runs the server: the current one; for root `named` or the owner of the files.

    A new directory of root goes to a user `siteatlas`, where there is one, else to `nobody`: that
    user exists everywhere, and unlike a `postgres` user it owns no other database, so a fault in
    our server cannot reach a system PostgreSQL.
    """
    if os.geteuid() != 0:
        return process_user()
    if named:
        return _configured_user(named, _owners(places[:1]))
    for user in (*_owners(places), *filter(None, map(_named_user, UNPRIVILEGED))):
        if user.uid != 0:
            return user
    raise EmbeddedServerError(
        "PostgreSQL refuses to run as root, and this machine has no unprivileged user for it. "
        "Run siteatlas as an ordinary user, or set DATABASE_URL."
    )


def _configured_user(name: str, owners: list[ServerUser]) -> ServerUser:
    """The user in SITEATLAS_SERVER_USER; refused if unknown, root, or not the owner of the data."""
    user = _named_user(name)
    if user is None or user.uid == 0:
        why = "which this machine does not have" if user is None else "but PostgreSQL refuses root"
        raise ConfigurationError(f"SITEATLAS_SERVER_USER names the user {name}, {why}.")
    if owners and owners[0].uid != user.uid:
        raise EmbeddedDirectoryUnusable(
            f"The data directory belongs to the user {owners[0].name}, but SITEATLAS_SERVER_USER "
            f"is {name}. Unset it, or give the directory to that user while nothing runs: "
            f"chown -R {name} DIRECTORY/postgres DIRECTORY/run DIRECTORY/*.lock"
        )
    return user


def _owners(places: Sequence[Path]) -> list[ServerUser]:
    """The users, apart from root, that own these paths."""
    return [user for place in places if (uid := _owner(place)) and (user := _known_user(uid))]


def _owner(place: Path) -> int | None:
    """The user id that owns a path; None if it cannot be read."""
    try:
        return place.lstat().st_uid
    except OSError:
        return None


def _known_user(uid: int) -> ServerUser | None:
    """The user with this id in the user database; None without an entry."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return None
    return ServerUser(uid, entry.pw_gid, entry.pw_name)


def _named_user(name: str) -> ServerUser | None:
    """The user with this name in the user database; None without an entry."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return ServerUser(entry.pw_uid, entry.pw_gid, name)
