"""The place of a backup: a file that appears once it is complete, or a standard stream."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from siteatlas.errors import InputError, OutputFailed

STANDARD_STREAM = "-"
OWNER_ONLY = 0o600


@contextmanager
def backup_target(name: str) -> Iterator[BinaryIO]:
    """A file to write a backup to, readable by its owner only; `-` is stdout.

    It replaces an older file of the same name when it is complete and on disk.
    """
    if name == STANDARD_STREAM:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(name)
    unfinished = path.with_name(f".{path.name}.part")
    try:
        unfinished.unlink(missing_ok=True)
        with open(unfinished, "xb", opener=_private) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        raise OutputFailed(f"{path}: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _private(name: str, flags: int) -> int:
    """Open a file that only its owner may read: a backup holds everything that is stored."""
    return os.open(name, flags, OWNER_ONLY)


def _sync_directory(folder: Path) -> None:
    """Bring the new name of a file to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def backup_source(name: str) -> Iterator[BinaryIO]:
    """A file to read a backup from; `-` is stdin."""
    if name == STANDARD_STREAM:
        yield sys.stdin.buffer
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 closed below
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error
    with file:
        yield file
