"""What this process uses of the machine, as the system tells it."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

STATUS = Path("/proc/self/stat")
OPEN_FILES = Path("/proc/self/fd")
SYSTEM = Path("/proc/stat")
# PrioritySemaphore in /proc/self/stat after the name of the program, which may hold blanks.
START, VIRTUAL_BYTES, RESIDENT_PAGES = 19, 20, 21


def process_usage() -> Iterator[tuple[str, str, str, float]]:
    """Name, kind, meaning and value of each figure; without /proc only what any system has."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = used.ru_utime + used.ru_stime
    yield "cpu_seconds_total", "counter", "Processor time used, in seconds.", seconds
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield "max_fds", "gauge", "Most file descriptors that may be open.", most
    if STATUS.exists():
        yield from _usage_from_proc()


def _usage_from_proc() -> Iterator[tuple[str, str, str, float]]:
    # One of them is the directory that is being read.
    handles = sum(1 for _ in OPEN_FILES.iterdir()) - 1
    yield "open_fds", "gauge", "Open file descriptors.", handles
    fields = _status_fields()
    yield "virtual_memory_bytes", "gauge", "Virtual memory.", int(fields[VIRTUAL_BYTES])
    resident = int(fields[RESIDENT_PAGES]) * resource.getpagesize()
    yield "resident_memory_bytes", "gauge", "Resident memory.", resident
    yield "start_time_seconds", "gauge", "Start of the process, in Unix time.", _start_time()


def _status_fields() -> list[str]:
    return STATUS.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


@cache
def _start_time() -> float:
    """The start by the clock of today, since the time of the boot is known to the second only."""
    since_boot = int(_status_fields()[START]) / os.sysconf("SC_CLK_TCK")
    return round(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot, 2)
