"""Starts, freezes and kills the worker and service processes of a test, and keeps their logs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.faults.database_inspector import DatabaseInspector
from tests.fixtures.commands import COMMAND
from tests.fixtures.waiting import wait_until

START_SECONDS = 40
END_SECONDS = 30
OWN_VARIABLES = ("SITEATLAS_", "SITEMAP_", "DATABASE_URL")


class FleetProcess:
    """One process under test, with its log."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        self.database_url = environment["DATABASE_URL"]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                arguments,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        """Everything it wrote to stdout and stderr."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        self.process.kill()
        self.process.wait(END_SECONDS)

    def freeze(self) -> None:
        """Suspend it (SIGSTOP)."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume it after `freeze` (SIGCONT)."""
        self.process.send_signal(signal.SIGCONT)

    async def wait(self, seconds: float = END_SECONDS) -> int:
        """Wait until it has exited; returns the exit code."""
        await wait_until(lambda: self.process.poll() is not None, seconds=seconds)
        assert self.process.returncode is not None
        return self.process.returncode

    async def stop(self) -> int:
        """Shut it down gracefully (SIGTERM) and wait; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await self.wait()


def orphaned_processes(one: FleetProcess) -> list[int]:
    """Processes that outlived a launcher such as faketime, which runs the program as its child.

    The process group alone does not identify them: its id may have been reused.
    """
    own = f"DATABASE_URL={one.database_url}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            group = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()[2]
            if int(group) == one.pid and own in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


class Fleet:
    """The processes of one test on one database; all are killed at its end."""

    def __init__(
        self, url: str, inspector: DatabaseInspector, folder: Path, lease: float = 2.0
    ) -> None:
        self.inspector = inspector
        self.lease = lease
        self.processes: list[FleetProcess] = []
        self._url = url
        self._folder = folder

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        for one in self.processes:
            if one.process.poll() is None:
                one.thaw()
                one.kill()
            for pid in orphaned_processes(one):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def environment(self, **settings: object) -> dict[str, str]:
        """An environment with these settings of Siteatlas and no others; `url` is the database."""
        kept = {n: v for n, v in os.environ.items() if not n.startswith(OWN_VARIABLES)}
        chosen = {"lease_seconds": self.lease, "egress_allow": "127.0.0.1:*", **settings}
        url = str(chosen.pop("url", self._url))
        own = {f"SITEATLAS_{name.upper()}": str(value) for name, value in chosen.items()}
        return {**kept, "DATABASE_URL": url, **own}

    def launch(self, *command: str, **settings: object) -> FleetProcess:
        """Start a program with these settings; does not wait."""
        log = self._folder / f"process-{len(self.processes)}.log"
        started = FleetProcess(list(command), self.environment(**settings), log)
        self.processes.append(started)
        return started

    async def worker(self, **settings: object) -> FleetProcess:
        """A worker that has registered."""
        (started,) = await self.workers(1, **settings)
        return started

    async def workers(self, count: int, **settings: object) -> list[FleetProcess]:
        """Several workers, started at the same time."""
        started = [self.launch(COMMAND, "worker", **settings) for _ in range(count)]
        for one in started:
            await self.wait_registered(one)
        return started

    async def wait_registered(self, one: FleetProcess) -> None:
        """Wait until a process is in the registry of workers."""

        async def there() -> bool:
            assert one.process.poll() is None, one.output
            query = "SELECT count(*) FROM workers WHERE pid = $1"
            return bool(await self.inspector.value(query, one.pid))

        await wait_until(there, seconds=START_SECONDS)

    async def service(self, *arguments: str, **settings: object) -> tuple[FleetProcess, str]:
        """A running `serve` on a free port, with its address."""
        started = self.launch(COMMAND, "serve", "--port", "0", *arguments, **settings)

        def address() -> str | None:
            assert started.process.poll() is None, started.output
            lines = [line for line in started.output.splitlines() if line.startswith("http://")]
            return lines[0] if lines else None

        await wait_until(lambda: address() is not None, seconds=START_SECONDS)
        found = address()
        assert found is not None
        return started, found

    def process_of(self, worker_id: str) -> FleetProcess:
        """The process behind a worker id."""
        pid = int(worker_id.rsplit("-", 2)[1])
        return next(one for one in self.processes if one.pid == pid)

    async def stop_all(self) -> list[int]:
        """Shut down all running processes gracefully; returns their exit codes."""
        living = [one for one in self.processes if one.process.poll() is None]
        for one in living:
            one.process.send_signal(signal.SIGTERM)
        return list(await asyncio.gather(*(one.wait() for one in living)))
