"""Workers that end together, with small programs in their place."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from asyncio.subprocess import Process

import pytest

from siteatlas.cli.hosting.workers import WorkerGroup
from siteatlas.logs import configure_logging

# It ends well when it is asked to, as a worker does. A blocked signal is still there for sigwait; a
# handler could run just before signal.pause, which would then wait for a second signal for ever.
OBEYS = "import signal; signal.pthread_sigmask(0, {15}); print(); signal.sigwait({15})"
FAILS_WHEN_ASKED = OBEYS + "; raise SystemExit(5)"


@pytest.fixture(autouse=True)
def _signal_that_is_not_ignored():
    """A command that ran in this process has left SIGUSR1 ignored; the workers would inherit that."""
    earlier = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGUSR1, earlier)


async def start(program: str = OBEYS) -> Process:
    command = [sys.executable, "-u", "-c", program]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    return process


def numbers_in(capfd) -> list[int]:
    """The numbers in the one line that was written about the end of a worker."""
    (line,) = capfd.readouterr().err.splitlines()
    return [int(number) for number in re.findall(r"\d+", line)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
async def test_a_worker_that_a_signal_ended_is_named_and_the_others_are_stopped(number, capfd):
    killed, other = await start(), await start()
    killed.send_signal(number)
    assert await WorkerGroup([other, killed]).ended() == 128 + number
    assert other.returncode == 0
    assert numbers_in(capfd) == [killed.pid, number]


@pytest.mark.parametrize("status", [0, 4])
async def test_a_worker_that_ended_by_itself_is_named_with_its_status(status: int, capfd):
    ended, other = await start(f"raise SystemExit({status})"), await start()
    assert await WorkerGroup([ended, other]).ended() == status
    assert other.returncode == 0
    assert numbers_in(capfd) == [ended.pid, status]


async def test_in_json_the_end_of_a_worker_is_one_object(capfd):
    configure_logging("info", "json")
    ended, other = await start("raise SystemExit(4)"), await start()
    assert await WorkerGroup([ended, other]).ended() == 4
    told = json.loads(capfd.readouterr().err)
    assert (told["event"], told["pid"], told["exit_code"]) == ("worker_process_ended", ended.pid, 4)


async def test_a_group_that_was_stopped_prints_nothing(capfd):
    group = WorkerGroup([await start(), await start()])
    group.stop()
    group.stop()
    assert await group.ended() == 0
    assert capfd.readouterr().err == ""


async def test_a_worker_that_was_drained_does_not_stop_the_others(capfd):
    """One obeys, the other was still starting; a third has jobs until it is stopped."""
    drained = OBEYS.replace("{15}", "{10}")
    busy = OBEYS.replace("print()", "signal.signal(10, signal.SIG_IGN); print()")
    workers = [await start(drained), await start(), await start(busy)]
    group = WorkerGroup(workers)
    group.drain()
    await asyncio.gather(*(worker.wait() for worker in workers[:2]))
    assert workers[2].returncode is None
    group.stop()
    assert await group.ended() == 0
    assert capfd.readouterr().err == ""


async def test_a_worker_that_fails_while_it_stops_gives_the_exit_code(capfd):
    failing = await start(FAILS_WHEN_ASKED)
    group = WorkerGroup([await start(), failing])
    group.stop()
    assert await group.ended() == 5
    assert numbers_in(capfd) == [failing.pid, 5]
