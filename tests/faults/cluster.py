"""A PostgreSQL server that tests can stop and start while processes use it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from siteatlas.storage.embedded.files import Postmaster, process_lives
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
        """Stop the server and wait until the postmaster has exited."""
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
        """Stop, wait, start."""
        self.stop(how)
        time.sleep(down_seconds)
        self.start()


@contextmanager
def restartable_server() -> Iterator[RestartableServer]:
    """A server in a temporary directory.

    It runs without fsync: the tests crash the server, never the machine. Commits that do not wait
    for the WAL (`synchronous_commit = off`) are lost in a crash as with any other server.
    """
    with fast_server() as embedded:
        databases = PostgresServer.of(embedded, behind_pooler=True)
        asyncio.run(databases.prepare())
        yield RestartableServer(embedded, databases)
