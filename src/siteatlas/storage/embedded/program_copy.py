"""A copy of the PostgreSQL binaries in a directory that another user may own.

Every step uses a handle of a directory that belongs to us, so that nobody can redirect what root
writes or makes accessible through a link.
"""

from __future__ import annotations

import fnmatch
import os
import shutil
from pathlib import Path

from siteatlas.storage.embedded.owned_files import own_directory

UNFINISHED = "unfinished"
FOLDER_MODE = 0o755
PROGRAM_MODE = 0o755
FILE_MODE = 0o644
EXECUTABLE = 0o100
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def copy_programs(folders: list[Path], copies: Path, name: str, leave_out: tuple[str, ...]) -> None:
    """Copy `folders` into `copies/name`, which gets its name when the copy is complete."""
    shutil.rmtree(copies, ignore_errors=True)
    with own_directory(copies) as target:
        os.fchmod(target, FOLDER_MODE)
        with own_directory(UNFINISHED, dir_fd=target) as unfinished:
            os.fchmod(unfinished, FOLDER_MODE)
            for folder in folders:
                _copy_folder(folder, folder.name, unfinished, leave_out)
        os.rename(UNFINISHED, name, src_dir_fd=target, dst_dir_fd=target)


def _copy_folder(source: Path, name: str, parent: int, leave_out: tuple[str, ...]) -> None:
    """Copy a directory of PostgreSQL binaries, with its links, into the directory `parent`."""
    with own_directory(name, dir_fd=parent) as target, os.scandir(source) as entries:
        os.fchmod(target, FOLDER_MODE)
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
    """Copy one file of the PostgreSQL binaries and set its mode."""
    handle = os.open(name, NEW_FILE, 0o600, dir_fd=parent)
    with source.open("rb") as reading, open(handle, "wb") as writing:  # noqa: PTH123 a handle
        shutil.copyfileobj(reading, writing, 1024 * 1024)
        executable = os.fstat(reading.fileno()).st_mode & EXECUTABLE
        os.fchmod(writing.fileno(), PROGRAM_MODE if executable else FILE_MODE)
