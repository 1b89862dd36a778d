"""CPU time until `siteatlas scan` sends its first request, compared with importing what it needs.

The comparison is with `import aiohttp, lxml.etree` in the same interpreter. CPU time, because it
depends less on what else runs on the machine.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.measured import our_command

RUNS = 7
TIMEOUT_SECONDS = 60
IMPORTS = "import aiohttp, lxml.etree"


def measure_startup() -> str:
    """One line: the medians of alternating runs and their ratio."""
    # The first round writes and reads the bytecode.
    rounds = [(cpu_of_imports(), cpu_to_first_request()) for _ in range(RUNS + 1)][1:]
    imports, scan = (statistics.median(seconds) for seconds in zip(*rounds, strict=True))
    return (
        f"startup: the first request after {scan:.3f} s of CPU time, "
        f"{scan / imports:.2f} x {IMPORTS!r} ({imports:.3f} s)"
    )


def cpu_of_imports() -> float:
    return _cpu_at_end(_start([sys.executable, "-c", IMPORTS]))


def cpu_to_first_request() -> float:
    """The CPU time of a scan that is killed when its first request arrives."""
    with socket.create_server(("127.0.0.1", 0)) as site:
        site.settimeout(TIMEOUT_SECONDS)
        host_port = f"127.0.0.1:{site.getsockname()[1]}"
        process = _start([our_command(), "scan", f"http://{host_port}/", "--allow", host_port])
        connection, _ = site.accept()
        with connection:
            connection.recv(1)
            process.kill()
            return _cpu_at_end(process)


def _start(command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
    environment = {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _cpu_at_end(process: subprocess.Popen[bytes]) -> float:
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime
