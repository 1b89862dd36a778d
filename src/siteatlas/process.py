"""The Python process and its machine: garbage collection, client connections, the boot id."""

from __future__ import annotations

import gc
import resource
from functools import cache
from pathlib import Path

# Scans leave thousands of objects in reference cycles, which only a full collection finds.
COLLECT_AFTER = (2_000, 10, 10)
# Sites, the database and files need the rest.
FILES_PER_CONNECTION = 2


def freeze_startup_objects() -> None:
    """Exempt all objects made so far from garbage collection.

    They live as long as the process, and each full collection that visited them stopped the
    event loop for a tenth of a second.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


@cache
def boot_id() -> str | None:
    """What differs after each start of this machine; None where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def connection_limit(wanted: int) -> int:
    """How many client connections there may be, within what the system lets this process open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, files // FILES_PER_CONNECTION))
