"""Safe access to files and directories that another user may own.

Root runs the embedded server as an unprivileged user, who could replace its own files by links to
files of root. Nothing here follows such a link, waits for a pipe, or reads a file of a third user.
Writing to such a directory is done as that user, see `server_user`.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from siteatlas.errors import EmbeddedDirectoryUnusable

REMEDY = (
    "Set SITEATLAS_DATA_DIR to another directory, or DATABASE_URL to use another PostgreSQL server."
)
MAX_READ_BYTES = 256 * 1024
WRITABLE_BY_OTHERS = 0o022
# Opening a pipe without a writer would wait for one.
READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
DIRECTORY = READ | os.O_DIRECTORY


def read_owned(base: Path, *names: str, start: int = 0) -> str:
    """The text of the file `base/names…` from `start` on; of a large one, only the last part."""
    with _opened(base, names, READ) as handle:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise _refusal(base, names)
        offset = max(start, about.st_size - MAX_READ_BYTES, 0)
        return os.pread(handle, MAX_READ_BYTES, offset).decode("utf-8", errors="replace")


def owned_sizes(base: Path, *names: str, suffix: str) -> dict[str, int]:
    """The sizes of the files with this suffix in the directory `base/names…`, by name."""
    try:
        with _opened(base, names, DIRECTORY) as handle:
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
    with _handle(os.open(path, DIRECTORY | os.O_NOFOLLOW, dir_fd=dir_fd)) as handle:
        if os.fstat(handle).st_uid != os.geteuid():
            raise EmbeddedDirectoryUnusable(f"{path} belongs to another user. {REMEDY}")
        yield handle


@contextlib.contextmanager
def _opened(base: Path, names: tuple[str, ...], flags: int) -> Iterator[int]:
    """Open the path `base/names…` one component at a time, refusing links and other owners."""
    with contextlib.ExitStack() as stack:
        handle = stack.enter_context(_handle(os.open(base, DIRECTORY | os.O_NOFOLLOW)))
        for depth, name in enumerate(names, start=1):
            step = flags if depth == len(names) else DIRECTORY
            below = _open_below(handle, name, step)
            if below is None:
                raise _refusal(base, names[:depth])
            handle = stack.enter_context(_handle(below))
        yield handle


def _open_below(parent: int, name: str, flags: int) -> int | None:
    """A handle of one entry; None for a link or an unexpected owner."""
    holder = os.fstat(parent)
    is_ours = holder.st_uid == os.geteuid()
    if not is_ours or holder.st_mode & WRITABLE_BY_OTHERS:
        if stat.S_ISLNK(os.lstat(name, dir_fd=parent).st_mode):
            return None
        flags |= os.O_NOFOLLOW
    handle = os.open(name, flags, dir_fd=parent)
    if is_ours or os.fstat(handle).st_uid == holder.st_uid:
        return handle
    os.close(handle)
    return None


def _names_in(directory: int) -> list[str]:
    """The names of the files in the directory of this handle."""
    return os.listdir(directory)


@contextlib.contextmanager
def _handle(handle: int) -> Iterator[int]:
    """Close an open file handle at the end of the block."""
    try:
        yield handle
    finally:
        os.close(handle)


def _refusal(base: Path, names: tuple[str, ...]) -> EmbeddedDirectoryUnusable:
    """The error for a path that is a link, a special file, or has an unexpected owner."""
    return EmbeddedDirectoryUnusable(
        f"{base.joinpath(*names)} is a link, a special file, or belongs to another user than its "
        f"directory, so it is not read. {REMEDY}"
    )
