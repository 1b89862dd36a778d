"""A PostgreSQL that can be stopped and started under the processes that use it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from siteatlas.storage.embedded.postmaster import Postmaster, process_lives
from siteatlas.storage.embedded.server import EmbeddedServer
from tests.fixtures.database import PostgresServer, fast_server
from tests.fixtures.waiting import block_until

FAST = signal.SIGINT
IMMEDIATE = signal.SIGQUIT
STOP_SECONDS = 30


@dataclass(frozen=True, slots=True)
class RestartableServer:
    """The embedded server with its migrated template; an immediate stop is a crash to it."""

    embedded: EmbeddedServer
    databases: PostgresServer

    @property
    def data(self) -> Path:
        """The data directory of PostgreSQL."""
        return self.embedded.data_dir / "postgres"

    def stop(self, how: signal.Signals = FAST) -> None:
        """End the server and wait until its first process is gone."""
        postmaster = Postmaster.of(self.data)
        if postmaster is None or not postmaster.lives:
            return
        os.kill(postmaster.pid, how)
        block_until(lambda: not process_lives(postmaster.pid), seconds=STOP_SECONDS)

    def start(self) -> None:
        """Start it again, through the same supervisor that the product uses."""
        self.embedded.acquire()
        self.embedded.release()

    def restart(self, how: signal.Signals = FAST, *, down_seconds: float = 0) -> None:
        """Stop, stay away for a while, start."""
        self.stop(how)
        time.sleep(down_seconds)
        self.start()


@contextmanager
def restartable_server() -> Iterator[RestartableServer]:
    """A server of our own in a directory that is gone afterwards.

    Neither crash of ours is one of the machine, so the disk need not be waited for; commits that
    do not wait for their log (`synchronous_commit = off`) are lost as they would be anywhere.
    """
    with fast_server() as embedded:
        databases = PostgresServer.of(embedded, behind_pooler=True)
        asyncio.run(databases.prepare())
        yield RestartableServer(embedded, databases)
