"""Where a scan writes its data: stdout, or a file that is created when it is complete.

Provides backpressure without blocking: a stalled pipe blocks only the writing thread, so that
network timeouts can still tell a slow site from a slow reader.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from siteatlas.aio.daemon_thread import DaemonWorker
from siteatlas.errors import InputError, OutputClosed, OutputFailed


class DataSink(Protocol):
    """Writes chunks of output; each chunk is written completely, or not at all on an error."""

    async def ready(self) -> None:
        """Wait until the next chunk can be written; raises the error of an earlier one."""

    def put(self, data: bytes) -> None:
        """Write a chunk. Call `ready` first."""

    async def close(self, *, keep: bool) -> None:
        """Write everything that is pending. `keep=False` leaves a file as it was before."""

    def abandon(self) -> None:
        """Discard unfinished output without waiting; the process ends now."""


def open_sink(output: Path | None) -> DataSink:
    """Stdout, or the file at `output`."""
    if output is None or str(output) == "-":
        return _stdout_sink()
    try:
        return _file_sink(output)
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror}.") from error


class DirectSink:
    """Writes at once; for what cannot stall: files and devices that are no terminals."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write

    async def ready(self) -> None:
        """Return at once; this output never stalls."""

    def put(self, data: bytes) -> None:
        """Write the chunk."""
        try:
            self._write(data)
        except OSError as error:
            raise _output_error(error) from error

    async def close(self, *, keep: bool) -> None:
        """Nothing is pending."""

    def abandon(self) -> None:
        """Do nothing: no chunk of scan output is unfinished."""


class ThreadSink:
    """Writes in a separate thread; for pipes, sockets and terminals, whose readers may stall."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._thread = DaemonWorker("output")
        self._pending: asyncio.Future[None] | None = None
        self._error: OutputFailed | None = None

    async def ready(self) -> None:
        """Wait until no chunk is being written; of several waiters, one at a time continues."""
        while (pending := self._pending) is not None:
            # Not awaited directly: cancelling the waiter must not cancel the write in progress.
            await asyncio.wait([pending])
            if self._pending is pending:
                self._pending = None
                self._record_write_error(pending.exception())
        if self._error is not None:
            raise self._error

    def put(self, data: bytes) -> None:
        """Pass a chunk of scan output to the thread that writes it."""
        if data:
            self._pending = self._thread.submit(lambda: write_chunk(self._descriptor, data))

    async def close(self, *, keep: bool) -> None:  # noqa: ARG002
        """Wait for the last chunk."""
        await self.ready()

    def abandon(self) -> None:
        """Do nothing: a chunk of scan output in the thread cannot be withdrawn."""

    def _record_write_error(self, error: BaseException | None) -> None:
        """Keep the error of the thread that writes the output of a scan, and write no more."""
        if not isinstance(error, OSError):
            return
        self._error = _output_error(error)
        # Nobody reads any more; the end of the process must not complain of it.
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), self._descriptor)


class FileSink(DirectSink):
    """Writes to a temporary file and moves it into place at the end.

    Until then, or if the result is not kept, an existing file is not changed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
        self._file = self._unfinished.open("xb", buffering=0)
        super().__init__(lambda data: write_chunk(self._file.fileno(), data))

    async def close(self, *, keep: bool) -> None:
        """Move the file into place, or delete it."""
        self._file.close()
        try:
            if keep:
                self._unfinished.replace(self._path)
            else:
                self._unfinished.unlink()
        except OSError as error:
            raise _output_error(error) from error

    def abandon(self) -> None:
        """Delete the unfinished output file of the scan."""
        self._unfinished.unlink(missing_ok=True)


def write_chunk(descriptor: int, data: bytes) -> None:
    """Write a chunk of scan output completely, even to a descriptor made non-blocking elsewhere."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


def _stdout_sink() -> DataSink:
    """Stdout as a sink of scan output; a thread writes to it if its reader may stall."""
    sys.stdout.flush()
    try:
        descriptor = sys.stdout.fileno()
    except OSError:
        return DirectSink(sys.stdout.buffer.write)
    if _may_stall(descriptor):
        return ThreadSink(descriptor)
    return DirectSink(lambda data: write_chunk(descriptor, data))


def _file_sink(path: Path) -> DataSink:
    """The sink for `siteatlas scan --output`: a regular file, or a device or pipe."""
    if path.exists() and not path.is_file():
        return ThreadSink(os.open(path, os.O_WRONLY))
    return FileSink(path.resolve())


def _may_stall(descriptor: int) -> bool:
    """Whether a write of scan output may block: not to a regular file or /dev/null."""
    mode = os.fstat(descriptor).st_mode
    device = stat.S_ISCHR(mode) and not os.isatty(descriptor)
    return not (stat.S_ISREG(mode) or device)


def _output_error(error: OSError) -> OutputClosed | OutputFailed:
    """The error that ends a scan whose output cannot be written."""
    if isinstance(error, BrokenPipeError):
        return OutputClosed()
    return OutputFailed(f"The output cannot be written: {error.strerror}.")
