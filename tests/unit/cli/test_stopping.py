"""Signals of a service: the first asks, the second ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

SERVICE = """
import asyncio, sys
from siteatlas.cli.stopping import stop_on_signals

async def main():
    stop = asyncio.Event()
    with stop_on_signals(stop.set if sys.argv[1] == "obeys" else lambda: None):
        print("ready", flush=True)
        await stop.wait()

asyncio.run(main())
"""


def start(manner: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVICE, manner],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_the_first_signal_lets_the_service_end_in_good_order():
    for number in (signal.SIGTERM, signal.SIGINT):
        process = start("obeys")
        process.send_signal(number)
        _, words = process.communicate(timeout=10)
        assert process.returncode == 0
        assert "once more to leave at once" in words


def test_the_second_signal_ends_the_service_at_once():
    process = start("hangs")
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    process.stderr.readline()
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == 128 + signal.SIGTERM
    assert time.monotonic() - started < 5
