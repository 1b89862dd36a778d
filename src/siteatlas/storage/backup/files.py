"""The place of a backup: a file that appears once it is complete, or a standard stream."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import BinaryIO

from siteatlas.errors import InputError, OutputFailed

STANDARD_STREAM = "-"


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
    try:
        with _unfinished(path) as (file, unfinished):
            yield file
            file.flush()
            os.fsync(file.fileno())
            unfinished.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        raise OutputFailed(f"{path}: {error.strerror or error}") from error


@contextmanager
def _unfinished(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A new file next to `path`, deleted at the end if it still has its first name.

    Its name is unique, since two processes may write a backup to one path. Only its owner may read
    it: a backup holds everything that is stored.
    """
    handle, name = mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file, Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


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
