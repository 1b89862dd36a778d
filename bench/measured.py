"""Runs a program to its end and measures its time and its peak memory."""

from __future__ import annotations

import compileall
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import siteatlas

SECONDS_BETWEEN_LOOKS = 0.02
PEAK_LINE = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a finished program took, and what it printed on stderr."""

    seconds: float
    peak_mb: float
    exit_code: int
    stderr: str


def peak_memory_mb(pid: int) -> float:
    """The most memory a living process has held; 0 where the system does not say."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0.0
    found = PEAK_LINE.search(status)
    return int(found[1]) / 1024 if found else 0.0


def _with_children(pid: int) -> list[int]:
    """A process and those that it has started."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        listed = ""
    return [pid, *map(int, listed.split())]


def run_measured(
    command: Sequence[str | Path],
    environment: Mapping[str, str],
    limit: float = 1800,
    *,
    folder: Path | None = None,
    with_children: bool = False,
) -> Measured:
    """Run `command` in `folder` with its output thrown away, for at most `limit` seconds.

    `with_children` adds the memory of the processes that it starts.
    """
    with tempfile.TemporaryFile() as stderr:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=stderr, cwd=folder
        )
        peak = 0.0
        while process.poll() is None:
            pids = _with_children(process.pid) if with_children else [process.pid]
            peak = max(peak, sum(map(peak_memory_mb, pids)))
            if time.perf_counter() - start > limit:
                process.kill()
            time.sleep(SECONDS_BETWEEN_LOOKS)
        seconds = time.perf_counter() - start
        stderr.seek(0)
        printed = stderr.read().decode(errors="replace").strip()
    return Measured(seconds, peak, process.returncode, printed)


def last_lines(text: str) -> str:
    """The last two lines of an output, which usually name the error."""
    return " ".join(text.splitlines()[-2:]) or "no output"


def compile_ours() -> None:
    """Write the bytecode of Siteatlas and its dependencies, which an installed wheel has too."""
    for folder in (Path(siteatlas.__file__).parent, Path(sysconfig.get_path("purelib"))):
        compileall.compile_dir(folder, quiet=2, workers=os.cpu_count() or 1)


def our_command() -> Path:
    """The `siteatlas` beside the Python that runs the benchmark."""
    return Path(sys.executable).parent / "siteatlas"
