"""Only one demo at a time uses a data directory: the sites of a second one would be added to it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from siteatlas.errors import DemoRunning
from siteatlas.storage.embedded.filesystem import directory_faults, make_data_dir

LOCK = "demo.lock"
MAX_ADDRESS_BYTES = 200


@contextmanager
def only_demo(data_dir: Path) -> Iterator[Callable[[str], None]]:
    """Lock the data directory while the block runs; DemoRunning if another demo has locked it.

    The value is a function that stores the address of this demo, for the message of another one.
    The lock of a killed process ends with it.
    """
    place = data_dir.expanduser().resolve()
    handle = _open_lock(place)
    try:
        _require_lock(handle, place)
        os.ftruncate(handle, 0)
        yield lambda address: _store_address(handle, address)
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _open_lock(place: Path) -> int:
    """Open the lock file of the demo, in a data directory that is created if needed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with directory_faults(place):
        make_data_dir(place)
        return os.open(place / LOCK, flags, 0o600)


def _require_lock(handle: int, place: Path) -> None:
    """Lock the file of the demo; DemoRunning names the address of the demo that has locked it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        address = os.pread(handle, MAX_ADDRESS_BYTES, 0).decode("ascii", errors="replace")
        where = f" at {address}/" if address else ""
        raise DemoRunning(f"A demo that uses {place} is already running{where}.") from error


def _store_address(handle: int, address: str) -> None:
    """Write the address of the running demo to its lock file."""
    os.pwrite(handle, address.encode("ascii"), 0)
