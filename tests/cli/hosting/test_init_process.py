"""A command as process 1, in a separate PID namespace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
if os.geteuid() != 0:
    NAMESPACE = [*NAMESPACE, "--user", "--map-root-user"]

# A shell that ends at once leaves an orphan behind, as the start of the embedded server does.
ORPHANS = """
import os, subprocess, time
from pathlib import Path
def command():
    print("pid", os.getpid(), "parent", os.getppid(), flush=True)
    for _ in range(5):
        subprocess.run(["sh", "-c", "sleep 0.1 & :"], check=True)
    give_up = time.monotonic() + 20
    while time.monotonic() < give_up:
        time.sleep(0.2)
        about = [p.read_text().rpartition(")")[2].split() for p in Path("/proc").glob("[0-9]*/stat")]
        below = [state for state, parent, *_ in about if parent == "1"]
        if len(below) == 1:
            break
    print("children of process 1:", below, flush=True)
    os._exit(7)
"""
WAITS = """
import signal, sys
def command():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
    print("ready", flush=True)
    signal.pause()
"""
KILLS_ITSELF = """
import os, signal
def command():
    os.kill(os.getpid(), signal.SIGKILL)
"""


@cache
def can_unshare() -> bool:
    try:
        done = subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


@pytest.fixture(autouse=True)
def namespaces() -> None:
    if not can_unshare():
        pytest.skip("no right to make a process namespace here")


def started(script: str) -> subprocess.Popen[str]:
    program = f"{script}\nfrom siteatlas.cli.hosting.init_process import run_below_init\n"
    return subprocess.Popen(
        [*NAMESPACE, sys.executable, "-c", f"{program}run_below_init(command)"],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_orphans_are_reaped_and_the_exit_code_is_that_of_the_command():
    with started(ORPHANS) as init:
        said, _ = init.communicate(timeout=40)
    assert said.splitlines()[0] == "pid 2 parent 1"
    assert said.splitlines()[1] in {f"children of process 1: ['{state}']" for state in "RSD"}
    assert init.returncode == 7


def test_a_signal_to_process_1_reaches_the_command():
    with started(WAITS) as init:
        assert init.stdout is not None
        assert init.stdout.readline() == "ready\n"
        (process_1,) = Path(f"/proc/{init.pid}/task/{init.pid}/children").read_text().split()
        os.kill(int(process_1), signal.SIGTERM)
        assert init.wait(40) == 9


def test_a_command_that_a_signal_ended_gives_its_number():
    with started(KILLS_ITSELF) as init:
        assert init.wait(40) == 128 + signal.SIGKILL
