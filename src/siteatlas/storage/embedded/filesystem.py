"""Creates the directories of the embedded PostgreSQL safely, and explains failures."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from siteatlas.errors import EmbeddedDirectoryUnusable
from siteatlas.storage.embedded.owned_files import REMEDY, is_empty, own_directory
from siteatlas.storage.embedded.postmaster import SOCKET_NAME
from siteatlas.storage.embedded.server_user import ServerUser

MAX_SOCKET_PATH_BYTES = 100
PRIVATE = 0o700
OPEN_TO_TRAVERSAL = 0o755
# The driver reads ":" as a port and "," as a second host; PostgreSQL splits at ",".
UNSPEAKABLE = re.compile(r"[:,'\"\\%]")
DISK_FULL = re.compile("No space left on device|Disk quota exceeded|Check free disk space")


@contextlib.contextmanager
def directory_faults(data_dir: Path) -> Iterator[None]:
    """Turn errors of the file system into errors that say what to do."""
    try:
        yield
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT} or DISK_FULL.search(str(error))
        reason = "the disk is full" if full else (error.strerror or str(error)[:200])
        at = f" ({error.filename})" if error.filename else ""
        raise EmbeddedDirectoryUnusable(
            f"{data_dir} cannot hold the embedded PostgreSQL: {reason}{at}. {REMEDY}"
        ) from error


def make_data_dir(data_dir: Path) -> None:
    """Create the data directory: private, or open to traversal if root creates it."""
    is_root = os.geteuid() == 0
    missing = [path for path in (data_dir, *data_dir.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        if is_root or path == data_dir:
            with own_directory(path) as made:
                os.fchmod(made, OPEN_TO_TRAVERSAL if is_root else PRIVATE)
    if not data_dir.is_dir():
        raise EmbeddedDirectoryUnusable(f"{data_dir} is not a directory. {REMEDY}")
    if is_root and data_dir.stat().st_uid == 0:
        _open_empty_to_traversal(data_dir)


def _open_empty_to_traversal(data_dir: Path) -> None:
    """Let the server's user traverse a data directory of root that is still empty."""
    with own_directory(data_dir) as handle:
        if is_empty(handle):
            os.fchmod(handle, stat.S_IMODE(os.fstat(handle).st_mode) | 0o011)


def make_private(directory: Path, user: ServerUser) -> None:
    """Create a directory for `user` only; refuse one that belongs to another user."""
    with contextlib.suppress(FileExistsError):
        directory.mkdir(PRIVATE)
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        owner = os.fstat(handle).st_uid
        if owner not in {user.uid, os.geteuid()}:
            raise EmbeddedDirectoryUnusable(f"{directory} belongs to another user. {REMEDY}")
        if owner != user.uid:
            os.fchown(handle, user.uid, user.gid)
        os.fchmod(handle, PRIVATE)
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
    """Create a private temporary socket directory; with a random name if `name` is taken."""
    try:
        make_private(place / name, user)
    except (EmbeddedDirectoryUnusable, OSError):
        random = Path(tempfile.mkdtemp(prefix=f"siteatlas-{user.uid}-", dir=place))
        make_private(random, user)
        return random
    return place / name


def _short_name(data_dir: Path, user: ServerUser) -> str:
    """The name of the temporary socket directory for a data directory and server user."""
    return f"siteatlas-{user.uid}-{sha256(os.fsencode(data_dir)).hexdigest()[:16]}"


def _can_hold_socket(directory: Path) -> bool:
    """Whether the path of the PostgreSQL socket in this directory is short and printable."""
    path = str(directory / SOCKET_NAME)
    short = len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES
    return short and path.isprintable() and not UNSPEAKABLE.search(path)
