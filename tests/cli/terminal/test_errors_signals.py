"""Signals of a service: the first shuts it down gracefully, the second at once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time

import pytest
from asyncpg import InterfaceError

from siteatlas.cli.terminal.errors import run_until_signal
from tests.fixtures.timings import measured

SERVICE = """
import asyncio, sys, time
from siteatlas.cli.terminal.errors import stop_on_signals

async def main():
    stop = asyncio.Event()
    clean_up = lambda: print("cleaned", flush=True)
    with stop_on_signals(stop.set if sys.argv[1] == "obeys" else lambda: None, clean_up):
        print("ready", flush=True)
        while sys.argv[1] == "blocks":
            await asyncio.sleep(0.1)
            time.sleep(1)
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


@pytest.mark.slow
def test_the_first_signal_shuts_the_service_down_gracefully():
    for number in (signal.SIGTERM, signal.SIGINT):
        process = start("obeys")
        process.send_signal(number)
        _, words = process.communicate(timeout=10)
        assert process.returncode == 0
        assert words.count("Ctrl-C") == 1


@pytest.mark.slow
@pytest.mark.parametrize("manner", ["hangs", "blocks"])
def test_the_second_signal_ends_the_service_at_once(manner: str):
    process = start(manner)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    process.stderr.readline()
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=10)
    assert process.returncode == 128 + signal.SIGTERM
    measured(time.monotonic() - started, 0.9)
    assert output == "cleaned\n"


AFTERWARDS = """
import asyncio, signal, sys
from siteatlas.cli.terminal.errors import quiet_interrupts, stop_on_signals

async def main():
    with stop_on_signals(lambda: None):
        pass

def interrupt(moment):
    if sys.argv[1] == moment:
        signal.raise_signal(signal.SIGINT)

with quiet_interrupts():
    asyncio.run(main())
    interrupt("before the end")
interrupt("at the end")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("moment", "code"), [("before the end", 130), ("at the end", 0)])
def test_an_interrupt_after_the_work_makes_no_noise(moment: str, code: int):
    command = [sys.executable, "-c", AFTERWARDS, moment]
    result = subprocess.run(command, capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (code, b"")


def test_a_signal_is_the_reason_even_if_the_cancelled_statement_fails_in_its_own_way(capsys):
    async def backup() -> None:
        signal.raise_signal(signal.SIGTERM)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise InterfaceError("another operation is in progress") from None

    with pytest.raises(SystemExit) as ending:
        run_until_signal(backup())
    signal.alarm(0)
    assert ending.value.code == 128 + signal.SIGTERM
    assert capsys.readouterr().err == "Stopped by a signal.\n"
